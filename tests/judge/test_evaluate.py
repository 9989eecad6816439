"""Evaluating many candidates: order, look-ups, and failures that stay with their candidate."""

import asyncio

import judge_problems as problems
import pytest

from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Candidate, Failure, LibraryStep
from warpsmith.tools.evaluate import Evaluator, Limits
from warpsmith.tools.null import NullCompiler, NullEvaluator, PlantedFailure
from warpsmith.tools.outcomes import provenance, roof_of, status_of
from warpsmith.tools.runs.store import RunStore
from warpsmith.tools.target import Target

TARGET = Target(kind="cpu", arch="sm_90", backend="sandbox.scripted:sample_backend")


def candidate(kernel: str, source: str = "") -> Candidate:
    return Candidate(source=source or kernel, plan=problems.plan("in0", "out0", kernel=kernel))


def evaluator(loaded, *, store=None, target=TARGET, compiler=None, **more):
    return Evaluator(loaded.ref, loaded.hash, target, compiler or NullCompiler(), store=store, **more)


def test_every_failure_stays_with_its_candidate(tmp_path):
    loaded = problems.problem(tmp_path, problems.SOFTMAX)
    seen = []
    kernels = ["softmax", "wrong", "crash", "wild", "hang", "softmax"]
    candidates = [candidate(kernel, f"{kernel} {n}") for n, kernel in enumerate(kernels)]
    candidates.insert(2, candidate("softmax", "#error"))

    async def body():
        with RunStore.create("t", tmp_path / "runs") as store:
            options = {"limits": Limits(verify_s=4), "notify": lambda kind, data: seen.append(kind)}
            async with evaluator(loaded, store=store, jobs=2, **options) as judge:
                first = await judge.evaluate(candidates, level="full")
                again = await judge.evaluate(candidates, level="screen")
                return first, again, judge.compiler.compiles, (store.folder / "results.jsonl").read_text()

    outcomes, again, compiles, lines = asyncio.run(body())
    statuses = [outcome.status for outcome in outcomes]
    assert statuses == ["ok", "wrong", "compile_error", "crashed", "crashed", "not_measured", "ok"]
    assert [outcome.candidate for outcome in outcomes] == [c.id for c in candidates]
    assert again == outcomes
    assert compiles == 7
    assert len(lines.splitlines()) == len(seen) == 7
    assert outcomes[0].verified_on == "scripted:cpu"
    assert outcomes[0].time_us is None
    assert outcomes[0].speedup is None
    assert "SIGSEGV" in outcomes[3].failure.message
    assert outcomes[5].failure.stage == "emulate"


def test_screening_is_no_full_verdict_and_estimates_are_passed_on(tmp_path):
    loaded = problems.problem(tmp_path, problems.SOFTMAX)

    async def body():
        async with evaluator(loaded, estimate=lambda c, report: 12.5) as judge:
            screened = (await judge.evaluate([candidate("softmax")], level="screen"))[0]
            full = (await judge.evaluate([candidate("softmax")], level="full"))[0]
            repeated = (await judge.evaluate([candidate("softmax")], level="screen"))[0]
            return screened, full, repeated

    screened, full, repeated = asyncio.run(body())
    assert (screened.status, full.status) == ("screened", "ok")
    assert repeated == full
    assert screened.estimated_us == full.cost_us == 12.5
    assert full.registers == 32


def test_the_users_mistake_is_raised_not_recorded(tmp_path):
    loaded = problems.problem(tmp_path, problems.SOFTMAX, rows="9000000")

    async def body():
        async with evaluator(loaded) as judge:
            await judge.evaluate([candidate("softmax")], level="screen")

    with pytest.raises(UserError, match="--set"):
        asyncio.run(body())


def test_provenance_and_statuses():
    product = LibraryStep(library="mm", args=("in0", "in1"), out="out0")
    own = problems.plan("in0", "out0")
    assert provenance(Candidate(source="", plan=own)) == "own"
    mixed = own.model_copy(update={"steps": (*own.steps, product)})
    assert provenance(Candidate(source="", plan=mixed)) == "hybrid"
    assert provenance(Candidate(source="", plan=own.model_copy(update={"steps": (product,)}))) == "library"
    assert status_of(Failure(stage="launch", kind="launch_config", message="")) == "launch_error"
    assert status_of(Failure(stage="launch", kind="hang", message="")) == "hang"
    assert status_of(Failure(stage="launch", kind="race", message="")) == "wrong"


def test_roof_leaves_room_for_what_l2_kept():
    roof = roof_of(100.0, model_for("sm_90"))
    assert 0 < roof.gate_us < 90
    assert roof_of(5.0, model_for("sm_90")).gate_us == 0


def test_null_evaluator_is_deterministic_and_fails_as_planted(tmp_path):
    fails = PlantedFailure(slot="block", value=1024, kind="too_many_threads")
    plain = [(block, candidate("softmax", f"block {block}")) for block in (64, 256, 1024)]
    variants = [c.model_copy(update={"values": {"block": block}}) for block, c in plain]

    async def body(store):
        judge = NullEvaluator(store=store, failures=[fails])
        outcomes = await judge.evaluate(variants, level="screen")
        assert await judge.evaluate(variants, level="screen") == outcomes
        assert judge.evaluations == 3
        return outcomes

    with RunStore.create("null", tmp_path) as store:
        outcomes = asyncio.run(body(store))
    assert [outcome.status for outcome in outcomes] == ["screened", "screened", "compile_error"]
    assert outcomes[0].cost_us != outcomes[1].cost_us
    assert outcomes[2].failure.slot == "block"
