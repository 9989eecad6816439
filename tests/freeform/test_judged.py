"""Whole candidates before the judge: plans that do not fit, kernels that fail in every way, twins by their binary."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from freeform import kernels
from support.slow_search import new_store

from warpsmith.app.workbench import Bench, open_bench
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.tools.compile import compile_candidate
from warpsmith.tools.runs.store import Level, RunStore
from warpsmith.tools.twins import binary_of, code_hash, ptx_hash

COMMENTED = f"// the same with other lines\n\n{kernels.RUNNING_TEXT}"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    path = kernels.problem(tmp_path_factory.mktemp("problem"), kernels.RUNNING_MAX)
    return open_bench(str(path), device="cpu", arch="sm_90", overrides={}, inputs=None, mode="eval")


def judged(bench: Bench, store: RunStore, rounds: Sequence[tuple[Level, Sequence[Candidate]]]) -> list[Outcome]:
    async def run() -> list[Outcome]:
        found: list[Outcome] = []
        async with bench.evaluator({}, store, None) as evaluator:
            for level, candidates in rounds:
                found += await evaluator.evaluate(candidates, level=level)
        return found

    return asyncio.run(run())


FAULTS = ("compile", "launch", "wrong", "hang", "plan")
FIRST = kernels.running_max()
TWIN = FIRST.model_copy(update={"source": COMMENTED, "parent": FIRST.id})
OTHER = FIRST.model_copy(update={"plan": kernels.plan("running_max", threads=2)})
BAD_TWIN = kernels.broken("wrong").model_copy(update={"source": f"// again\n{kernels.broken('wrong').source}"})


@pytest.fixture(scope="module")
def run(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Outcome]]:
    """One evaluator's answers by candidate, and the run's folder."""
    faults = [kernels.broken(what) for what in FAULTS]
    with new_store(tmp_path_factory.mktemp("run")) as store:
        rounds: list[tuple[Level, Sequence[Candidate]]] = [
            ("screen", [FIRST, *faults, BAD_TWIN]),
            ("screen", [TWIN, OTHER]),
            ("full", [FIRST]),
        ]
        outcomes = judged(bench, store, rounds)
        screened = {one.candidate: one for one in reversed(outcomes)}
        return store.folder, screened


def test_every_failure_is_an_outcome_with_its_stage(run: tuple[Path, dict[str, Outcome]]) -> None:
    outcomes = [run[1][kernels.broken(what).id] for what in FAULTS]
    stages = [(o.status, o.failure.stage if o.failure else None) for o in outcomes]
    assert stages == [
        ("compile_error", "compile"),
        ("crashed", "launch"),
        ("wrong", "verify"),
        ("hang", "launch"),
        ("launch_error", "launch"),
    ]
    assert outcomes[4].failure is not None
    assert outcomes[4].failure.kind == "plan"
    assert "out7" in outcomes[4].failure.message


def test_a_twin_is_not_judged_again_and_is_marked(run: tuple[Path, dict[str, Outcome]]) -> None:
    a, b, c = (run[1][one.id] for one in (FIRST, TWIN, OTHER))
    assert (a.status, a.duplicate_of) == ("screened", None)
    assert (b.status, b.duplicate_of) == ("screened", FIRST.id)
    assert (b.candidate, b.parent, b.estimated_us) == (TWIN.id, FIRST.id, a.estimated_us)
    assert b.verify_s is None
    assert c.duplicate_of is None


def test_twins_of_one_batch_are_judged_once(run: tuple[Path, dict[str, Outcome]]) -> None:
    both = [run[1][one.id] for one in (kernels.broken("wrong"), BAD_TWIN)]
    assert {o.status for o in both} == {"wrong"}
    assert sorted(o.duplicate_of is None for o in both) == [False, True]


def test_twins_are_known_after_a_restart_and_at_full_level(bench: Bench, run: tuple[Path, dict[str, Outcome]]) -> None:
    with RunStore.open(run[0]) as store:
        (again,) = judged(bench, store, [("full", [TWIN])])
    assert (again.status, again.duplicate_of, again.shape_specific) == ("ok", FIRST.id, True)


def test_the_emulator_has_twins_by_what_it_runs() -> None:
    """The device's assembler takes a loop out of which nothing is seen; the PTX still holds it, and never ends."""
    plain, endless = (
        kernels.running_max().model_copy(
            update={
                "source": f'extern "C" __global__ void running_max(const float* x, float* y) {{ {loop} y[0] = 1.0f; }}'
            }
        )
        for loop in ("", "volatile int go = 1; while (go) {}")
    )
    reports = [compile_candidate(one, "sm_90") for one in (plain, endless)]
    assert [report.failure for report in reports] == [None, None]
    assert binary_of(plain, reports[0], "gpu") == binary_of(endless, reports[1], "gpu")
    assert binary_of(plain, reports[0], "cpu") != binary_of(endless, reports[1], "cpu")


@pytest.mark.parametrize(
    ("line", "said"),
    [("// why", True), (".loc\t1 3 1", True), (".loc 1 3 1, function_name $L__info, inlined_at 1 9 2", True),
     ('.file\t1 "/kernel.cu"', True), (".loc 1 3 1 st.global.u32 [%rd1], %r3;", False), ("ret;", False),
     (".loc 1 3 1 // why", False)],
)  # fmt: skip
def test_what_stands_behind_a_line_number_is_code(line: str, said: bool) -> None:
    assert (ptx_hash("ret;\n" + line) == ptx_hash("ret;")) == said


def test_line_numbers_are_no_part_of_a_binary(tmp_path: Path) -> None:
    first = kernels.running_max()
    reports = [compile_candidate(one, "sm_90") for one in (first, first.model_copy(update={"source": COMMENTED}))]
    assert reports[0].modules[0].cubin_hash != reports[1].modules[0].cubin_hash
    changed = first.model_copy(update={"source": kernels.RUNNING_TEXT.replace("(float)top", "(float)top * 2.0f")})
    other = compile_candidate(changed, "sm_90")
    for kind in ("gpu", "cpu"):
        assert binary_of(first, reports[0], kind) == binary_of(first, reports[1], kind)
        assert binary_of(changed, other, kind) != binary_of(first, reports[0], kind)
    with pytest.raises(ValueError, match="not a cubin"):
        code_hash(b"no cubin")
