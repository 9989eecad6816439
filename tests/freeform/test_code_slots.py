"""Code slots in a search: who may edit which text, what becomes of it, and that later edits build on it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from freeform import kernels
from support.slow_search import new_store

from warpsmith.agents.scripted import ScriptedPolicy
from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import OptimizeSettings, optimize_bench
from warpsmith.app.workbench import Bench, open_bench, specs_of
from warpsmith.graph.run import run_search
from warpsmith.graph.state import Means, SearchSettings
from warpsmith.kernels.carry import edited_slots
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.slots import Slot, SlotEdit
from warpsmith.tools.null import NullEvaluator, pseudo_cost
from warpsmith.tools.runs.store import RunStore

GELU = kernels.SOFTMAX.replace("torch.softmax(x, dim=1)", "torch.relu(x) * 2.0 + 1.0")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    path = kernels.problem(tmp_path_factory.mktemp("problem"), GELU)
    return open_bench(str(path), device="cpu", arch="sm_90", overrides={}, inputs=None, mode="eval")


@pytest.fixture(scope="module")
def spec(bench: Bench) -> KernelSpec:
    return specs_of(bench)["map"]


def code_slot(spec: KernelSpec) -> Slot:
    return next(slot for slot in spec.slots if slot.kind == "code")


def cost(candidate: Candidate) -> float:
    """Kernels with an edited text are the cheapest."""
    return pseudo_cost(candidate.model_copy(update={"values": {}})) * (0.5 if "// rewritten" in candidate.source else 1)


def played(spec: KernelSpec, folder: Path, edits: dict[int, Any], **settings: Any) -> tuple[RunStore, list[Any]]:
    heard: list[Any] = []
    with new_store(folder) as store:
        run = run_search(
            [spec],
            NullEvaluator(store=store, cost=cost),
            store,
            SearchSettings(**{"budget": 8, "batch": 2, **settings}),
            lambda kind, data: heard.append((kind, data)),
            means=Means(ScriptedPolicy(edits=edits)),
        )
        asyncio.run(run)
        return store, heard


def test_an_edit_of_text_is_evaluated_and_later_choices_build_on_it(spec: KernelSpec, tmp_path: Path) -> None:
    slot = code_slot(spec)
    text = f"{slot.default}\n// rewritten"
    store, heard = played(spec, tmp_path, {1: {slot.owner: (SlotEdit(slot.name, text),)}})
    outcomes = store.outcomes()
    edited = [o for o in outcomes if o.slots[slot.name] == text]
    first = store.get_candidate(edited[0].candidate)
    assert first.parent in {o.candidate for o in outcomes}
    assert edited_slots(spec, first) == [slot.name]
    children = [o for o in outcomes if o.parent == first.id]
    assert children
    assert all(child.slots[slot.name] == text for child in children)
    assert not [data for kind, data in heard if kind == "edits_refused"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [('asm volatile("");', "assembly"), ("} void other() {", "closes"), ("return;", "return")],
)
def test_text_that_leaves_its_slot_is_refused_and_told(
    spec: KernelSpec, tmp_path: Path, text: str, reason: str
) -> None:
    slot = code_slot(spec)
    store, heard = played(spec, tmp_path, {1: {slot.owner: (SlotEdit(slot.name, text),)}})
    refused = [data for kind, data in heard if kind == "edits_refused"]
    assert refused[0]["slots"] == [slot.name]
    assert reason in refused[0]["reason"]
    assert not [o for o in store.outcomes() if o.slots[slot.name] != slot.default]
    assert len(store.outcomes()) == 8


def test_a_role_that_does_not_own_the_text_may_not_edit_it(spec: KernelSpec, tmp_path: Path) -> None:
    slot = code_slot(spec)
    thief = next(role for role in ("memory", "config", "reduction") if role != slot.owner)
    _, heard = played(spec, tmp_path, {1: {thief: (SlotEdit(slot.name, f"{slot.default}\n"),)}})
    assert next(data["reason"] for kind, data in heard if kind == "edits_refused").endswith(f"not to {thief}")


def test_the_state_holds_no_text(spec: KernelSpec, tmp_path: Path) -> None:
    slot = code_slot(spec)
    marked = f"{slot.default}\n// a text to be found again"
    store, _ = played(spec, tmp_path, {1: {slot.owner: (SlotEdit(slot.name, marked),)}})
    assert b"to be found again" not in (store.folder / "checkpoints.db").read_bytes()


def test_an_edited_text_is_judged_at_hidden_shapes(bench: Bench, spec: KernelSpec, tmp_path: Path) -> None:
    slot = code_slot(spec)
    edits = {0: {slot.owner: (SlotEdit(slot.name, str(slot.default).replace("v0 * 2.0f", "v0 + v0")),)}}
    settings = OptimizeSettings(problem="", device="cpu", budget=2, out=tmp_path, verdicts=2)
    finished = optimize_bench(bench, settings, QuietDisplay(), ScriptedPolicy(edits=edits))
    with RunStore.open(finished.folder, writable=False) as store:
        edited = [o for o in store.outcomes() if o.slots[slot.name] != slot.default]
        assert next(o.shape_specific for o in edited if o.status == "ok") is False
