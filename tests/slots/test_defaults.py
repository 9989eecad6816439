"""Default weights: from recorded timings to specialists that come with Warpsmith."""

import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.problems import problem
from typer.testing import CliRunner

from warpsmith.agents.registry import make_policy
from warpsmith.agents.slots.policy import SHIPPED, SlotPolicy
from warpsmith.agents.slots.specialist import read_specialists
from warpsmith.app.slots.__main__ import app
from warpsmith.app.workbench import open_bench, specs_of, write_manifest
from warpsmith.kernels.errors import UserError
from warpsmith.rl.slots.offline import OfflineSettings, by_family, fitted, left_out
from warpsmith.rl.slots.records import Recorded, read_records
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import RunStore

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "h200_spaces.jsonl.xz"
FAMILY = "global_reduce"


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """What was measured of one family on an H200."""
    lines = [json.loads(line) for line in lzma.decompress(DATA.read_bytes()).decode().splitlines()]
    own = [line for line in lines if line.get("family") == FAMILY]
    named = {line["problem"] for line in own}
    regions = [line for line in lines if "region" in line and line["problem"] in named]
    path = tmp_path_factory.mktemp("records") / "sums.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (*regions, *own)))
    return read_records(path)


def test_shipped_weights_are_those_that_the_command_makes(sums: list[Recorded]) -> None:
    shipped = {one.operator_class: one for one in read_specialists(SHIPPED)}
    assert set(shipped) == {"column", "gemm", "global_reduce", "map", "row", "scan", "window"}
    assert {one.arch for one in shipped.values()} == {"sm_90"}
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 100_000
    made = fitted(sums, OfflineSettings(), {})
    assert made.slots == shipped[FAMILY].slots
    assert made.bias == pytest.approx(shipped[FAMILY].bias, abs=0.1)
    assert np.asarray(made.pairs) == pytest.approx(np.asarray(shipped[FAMILY].pairs), abs=0.1)


def test_learnt_preferences_order_problems_that_were_left_out_better_than_the_prior(sums: list[Recorded]) -> None:
    assert len(by_family(sums)) == 1
    found = left_out(sums, OfflineSettings())
    assert len(found) == 5
    for one in found:
        assert one.spearman[1] > one.spearman[0], one.problem
    assert np.mean([one.spearman[1] - one.spearman[0] for one in found]) > 0.1
    assert np.mean([one.first[1] for one in found]) <= np.mean([one.first[0] for one in found])


def test_shuffled_times_teach_nothing(sums: list[Recorded]) -> None:
    rng = np.random.default_rng(0)
    shuffled = [replace(one, log_us=rng.permutation(one.log_us)) for one in sums]
    gaps = []
    for k, held in enumerate(sums):
        found = left_out([*shuffled[:k], held, *shuffled[k + 1 :]], OfflineSettings())
        gaps += [one.spearman[1] - one.spearman[0] for one in found if one.problem == held.problem]
    assert len(gaps) == 5
    assert np.mean(gaps) < 0.1


def test_a_search_by_default_begins_from_the_shipped_weights_of_its_own_class(sums: list[Recorded]) -> None:
    policy = make_policy("slots:default")
    assert isinstance(policy, SlotPolicy)
    space = sums[0].layout.grid.space
    assert np.abs(policy.learnt(space, ()).weights.bias).max() > 0.1
    assert space.check(policy.opening(space)) is None
    other = tuple(one for one in policy.specialists if one.operator_class != FAMILY)
    assert not SlotPolicy(other, own_class=True).learnt(space, ()).weights.bias.any()


def run_of(folder: Path, name: str, line: str) -> None:
    """A run of a problem with every single change of a slot, as if timed on a GPU."""
    file = folder / f"{name}.py"
    file.write_text(problem(line))
    bench = open_bench(str(file), device="cpu", arch=None, overrides={}, inputs=None, mode="eval", jobs=1)
    spec = next(iter(specs_of(bench).values()))
    with RunStore.create(name, folder / "runs") as store:
        write_manifest(store, bench, {"problem": bench.problem.ref.model_dump(mode="json")}, 0)
        judge = NullEvaluator(problem_hash=bench.problem.hash, store=store, measured=True)
        free = [spec.naive | {slot.name: value} for slot in spec.choice_slots for value in slot.values]
        for values in free:
            if spec.check(values) is None:
                judge._one(spec.emit(values), "full")


def called_on_a_gpu(folder: Path) -> None:
    """As if the runs there were of a GPU."""
    for manifest in folder.glob("runs/*/manifest.json"):
        with RunStore.open(manifest.parent) as store:
            store.write_manifest(store.manifest().model_copy(update={"device": "gpu:NVIDIA H200"}))


def test_timings_of_runs_become_records_and_records_specialists(tmp_path: Path) -> None:
    records, made = tmp_path / "records.jsonl.xz", tmp_path / "made"
    collect = ["collect", str(tmp_path / "runs"), "--to", str(records)]
    defaults = ["defaults", str(records), "--to", str(made)]
    run_of(tmp_path, "double", "x * 2 + 1")
    refused = CliRunner().invoke(app, collect)
    assert isinstance(refused.exception, UserError)
    assert "need a GPU" in str(refused.exception)
    called_on_a_gpu(tmp_path)
    assert CliRunner().invoke(app, collect).exit_code == 0
    (found,) = read_records(records)
    assert len(found.choices) == len({tuple(one) for one in found.choices}) > 3
    alone = CliRunner().invoke(app, defaults)
    assert isinstance(alone.exception, UserError)
    assert "two problems" in str(alone.exception)
    run_of(tmp_path, "triple", "x * 3 - x.relu()")
    called_on_a_gpu(tmp_path)
    for words in (collect, defaults):
        told = CliRunner().invoke(app, words)
        assert told.exit_code == 0, told.output
    (specialist,) = read_specialists(made)
    assert (specialist.operator_class, specialist.arch, specialist.made["problems"]) == ("map", "sm_90", 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "line 1"), ('{"problem": "a", "family": "map", "values": {}, "time_us": -1}', "time_us is -1"),
     ('{"problem": "a", "family": "map", "values": {}, "time_us": 1}', "no region"),
     ('{"problem": "a", "time_us": 1}', "family")],
)  # fmt: skip
def test_records_that_are_wrong_name_the_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "records.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=said):
        read_records(tmp_path / "records.jsonl")
