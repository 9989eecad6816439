"""Whole searches with a competent player behind a real server: planned slots, a mended text, a kernel from nothing."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.roles import EXAMPLES

from warpsmith.agents.llm.scripted.competent import Competent
from warpsmith.agents.llm.scripted.faults import Fault
from warpsmith.agents.llm.scripted.players import Player, RandomLegal
from warpsmith.agents.llm.scripted.server import ScriptedServer
from warpsmith.agents.space import Grid, SpecSpace
from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import Finished, OptimizeSettings, document, optimize_bench, summary
from warpsmith.app.workbench import Bench, open_bench, specs_of
from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.kernels.records import Outcome
from warpsmith.kernels.slots import Values
from warpsmith.tools.runs.store import RunStore

SMALL: dict[str, dict[str, str]] = {
    "softmax": {"batch_size": "8", "dim": "256"},
    "matmul": {"M": "32", "N": "32", "K": "32"},
    "swish_scale": {"rows": "8", "columns": "256"},
}


def bench_of(name: str) -> Bench:
    path = str(EXAMPLES / f"{name}.py")
    return open_bench(path, device="cpu", arch=None, overrides=SMALL[name], inputs=None, mode="eval")


@pytest.fixture(scope="module")
def swish() -> Bench:
    return bench_of("swish_scale")


def optimized(bench: Bench, url: str, out: Path, **more: Any) -> Finished:
    policy = more.pop("policy", f"chat:scripted@{url}")
    wanted = OptimizeSettings(
        problem=str(bench.problem.ref.path), device="cpu", policy=policy, verdicts=1, out=out, **more
    )
    return optimize_bench(bench, wanted, QuietDisplay())


def by_model(bench: Bench, *, alone: bool = False) -> Values:
    """The cheapest combination of all families, by the cost model. With `alone`, among those that roles can bring about
    each by itself, as what one of them sets is legal whatever the others keep; not what a search begins with."""
    found: list[tuple[float, Values]] = []
    for spec in specs_of(bench).values():
        space = SpecSpace(spec)
        prior = space.sensible()
        every = [Grid(space).values(point) for point in Grid(space).all_points()]
        for values in every:
            cost = space.estimate(values)
            steps = ({**prior, **{name: values[name] for name in names}} for names in space.groups.values())
            reached = not alone or (values != prior and not any(space.check(step) for step in steps))
            if cost is not None and reached:
                found.append((cost, values))
    return min(found, key=lambda one: one[0])[1]


def outcomes(finished: Finished) -> list[Outcome]:
    lines = (finished.folder / "results.jsonl").read_text().splitlines()
    return [Outcome.model_validate_json(line) for line in lines]


def events(finished: Finished, kind: str) -> list[Mapping[str, Any]]:
    lines = (finished.folder / "events.jsonl").read_text().splitlines()
    return [event["data"] for event in map(json.loads, lines) if event["kind"] == kind]


def test_a_search_ends_with_the_planned_slots_a_free_form_kernel_and_a_mended_text(tmp_path: Path) -> None:
    bench = bench_of("softmax")
    plan = by_model(bench)
    player = Competent(plan=plan)
    with ScriptedServer(player=player) as server:
        finished = optimized(bench, server.base_url, tmp_path, budget=20)
        prompts = [message["content"] for r in server.requests for message in r.body["messages"]]
    best = finished.result.best
    assert best is not None
    assert best.status == "ok"
    assert {name: best.slots[name] for name in plan} == plan
    assert player.done >= {"freeform", "written", "mistake", "mend"}
    found = outcomes(finished)
    assert any(one.family == "freeform" and one.correct for one in found)
    (broken,) = [one for one in found if one.status == "compile_error"]
    assert broken.failure is not None
    assert broken.failure.slot == "post"
    mended = [one for one in found if one.parent == broken.candidate and one.correct]
    assert any(one.slots["post"] != broken.slots["post"] for one in mended)
    _keeps_secrets(prompts, finished)


def _keeps_secrets(prompts: list[str], finished: Finished) -> None:
    """No path of this machine, no hidden shape, no kind of hidden input reached a model."""
    text = "\n".join(prompts)
    assert str(finished.folder) not in text
    assert "/tmp/" not in text
    assert str(EXAMPLES.parent) not in text
    assert "hidden" not in text
    assert "normal` inputs" not in text
    assert "/site-packages/" not in text
    assert "sk-secret-of-a-test" not in text


@pytest.mark.parametrize("name", ["swish_scale", pytest.param("matmul", marks=pytest.mark.slow)])
def test_other_families_end_with_their_planned_slots_too(name: str, tmp_path: Path, swish: Bench) -> None:
    bench = swish if name == "swish_scale" else bench_of(name)
    plan = by_model(bench, alone=True)
    with ScriptedServer(player=Competent(plan=plan, code=False)) as server:
        finished = optimized(bench, server.base_url, tmp_path, budget=8)
    best = finished.result.best
    assert best is not None
    planned = [one for one in outcomes(finished) if {n: one.slots.get(n) for n in plan} == plan]
    assert planned
    assert best.cost_us is not None
    assert best.cost_us <= min(one.cost_us for one in planned if one.cost_us is not None)


def test_a_cap_ends_the_search_with_what_it_has_and_resuming_pays_nothing_twice(swish: Bench, tmp_path: Path) -> None:
    with ScriptedServer(player=RandomLegal(1)) as server:
        first = optimized(swish, server.base_url, tmp_path, budget=8, max_calls=4)
        paid = len(server.requests)
        assert first.result.stop == "cap"
        assert first.result.best is not None
        assert "max-calls" in events(first, "cap")[0]["reason"]
        assert "any further: --max-calls 4 is reached; go on with --resume" in summary(first)
        again = optimized(swish, server.base_url, tmp_path, budget=8, max_calls=4, resume=first.folder)
        assert len(server.requests) == paid <= 4
        assert again.result.stop == "cap"
        more = optimized(swish, server.base_url, tmp_path, budget=8, resume=first.folder)
    assert more.result.stop == "budget"
    assert more.result.screened == 8
    assert "and a larger cap" in summary(first)
    assert "questions answered" in summary(more)


def test_models_that_give_nothing_are_told_of_in_the_result(swish: Bench, tmp_path: Path) -> None:
    with ScriptedServer(faults=[Fault("refusal")]) as server:
        finished = optimized(swish, server.base_url, tmp_path, budget=4)
    used = document(finished)["models"]
    assert used["answered"] == 0
    assert used["questions"] > 0
    assert used["calls"] == len(server.requests)
    assert "models: no usable reply" in summary(finished)
    assert "so builtin proposed everything" in summary(finished)


def test_a_server_that_goes_away_leaves_what_there_is(swish: Bench, tmp_path: Path) -> None:
    faults = [Fault("bad_key", on=frozenset(range(30, 10_000)))]
    with ScriptedServer(player=RandomLegal(1), faults=faults) as server:
        finished = optimized(swish, server.base_url, tmp_path, budget=40)
    assert finished.result.stop == "server"
    assert finished.result.best is not None
    assert events(finished, "cap")[0]["reason"]


def test_a_server_that_is_not_there_is_an_error_of_the_machine(swish: Bench, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(EnvironmentError_, match="is the server running") as raised:
            optimized(swish, url, tmp_path, budget=4)
    assert raised.value.exit_code == 4


@pytest.mark.slow
def test_the_second_interrupt_breaks_off_a_question_and_the_run_goes_on_later(tmp_path: Path) -> None:
    words = ["optimize", str(EXAMPLES / "swish_scale.py"), "--device", "cpu", "--set", "rows=8", "--set", "columns=256"]
    with ScriptedServer(player=RandomLegal(1), faults=[Fault("slow", seconds=300.0)]) as server:
        policy = ["--budget", "4", "--policy", f"chat:scripted@{server.base_url}", "--out", str(tmp_path)]
        command = [sys.executable, "-P", "-m", "warpsmith", *words, *policy]
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not server.requests:
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "--resume" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["limit", "server_error", "slow", "truncated", "fenced", "think_tags", "refusal",
                                  "invalid_enum", "dropped", "empty", "no_choices", "web_page"])  # fmt: skip
@pytest.mark.parametrize("player", [RandomLegal(7), Competent()])
def test_a_fault_anywhere_ends_in_a_verified_kernel(kind: str, player: Player, swish: Bench, tmp_path: Path) -> None:
    faults = [Fault(kind, probability=0.3)]  # type: ignore[arg-type]
    with ScriptedServer(player=player, faults=faults, seed=3) as server:
        finished = optimized(swish, server.base_url, tmp_path, budget=12)
    assert finished.result.best is not None
    assert RunStore.open(finished.folder, writable=False).outcome(finished.result.best.candidate, "full") is not None
