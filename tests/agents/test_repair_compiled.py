"""Repair against the real compiler: a register spill that ptxas reports is mended on the row family."""

from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.agents.builtin import BuiltinPolicy
from warpsmith.agents.policy import Request, Trial
from warpsmith.agents.rounds import next_round
from warpsmith.agents.space import SpecSpace
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.cost import estimate_us
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.families.row import RowFamily
from warpsmith.kernels.family import Invalid, KernelSpec, spec_for
from warpsmith.kernels.indexing import Expr, Term
from warpsmith.kernels.records import Failure
from warpsmith.kernels.region import Axis, Line, Load, Reduction, Region, Round, Store
from warpsmith.kernels.slots import Values
from warpsmith.tools.compile import compile_candidate

COLUMNS = 65536


class TrustingRow(RowFamily):
    """The row family without its own estimate of registers, so that too greedy a choice reaches the compiler."""

    def check(self, region: AnyRegion, device: DeviceModel, values: Values) -> Invalid | None:
        problem = super().check(region, device, values)
        return None if problem is not None and problem.kind == "registers" else problem


def softmax_spec() -> KernelSpec:
    """Row softmax over 65,536 columns."""
    place = Expr((Term("k0", COLUMNS), Term("r0", 1)))
    numel = 512 * COLUMNS
    region = Region(
        kept=(Axis("k0", 512),),
        reduced=(Axis("r0", COLUMNS),),
        loads=(Load("x", "in0", "float32", place, "full", numel),),
        rounds=(
            Round((), (Reduction("m", "max", "x"),), ()),
            Round((Line("e", "float", "expf(x - m)", "full", ("x", "m")),), (Reduction("s", "sum", "e"),), ()),
        ),
        post=(Line("y", "float", "expf(x - m) / s", "full", ("x", "m", "s")),),
        stores=(Store("y", "out0", "float32", place, "full", numel),),
        flops=4 * numel,
        floor_bytes=8 * numel,
    )
    return spec_for(TrustingRow(), region, model_for("sm_90"))


def compiled(spec: KernelSpec, values: Values, cache: Path) -> Trial:
    """What the compiler says of a combination."""
    report = compile_candidate(spec.emit(values), "sm_90", cache_dir=cache)
    spilled = sum(r.spill_stores + r.spill_loads for r in report.resources.values())
    cost = estimate_us(spec, values, report) if report.ok else None
    return Trial(values, cost, failure=report.failure, spills=spilled)


def launched(spec: KernelSpec, values: Values, cache: Path) -> Trial:
    """The same on a device that launches no more than 256 threads a block."""
    if int(values["threads"]) > 256:
        failure = Failure(stage="launch", message="CUDA_ERROR_INVALID_VALUE", kind="launch_config")
        return Trial(values, None, failure=failure)
    return compiled(spec, values, cache)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("answer", "residency"), [(compiled, "registers"), (launched, "reread")])
def test_a_real_spill_and_an_over_large_block_are_mended_within_four(
    answer, residency: str, batch: int, tmp_path: Path
) -> None:
    spec = softmax_spec()
    space = SpecSpace(spec)
    start = space.naive | {"threads": 1024, "residency": residency, "vector": 4}
    history = [replace(answer(spec, start, tmp_path), candidate="0")]
    assert history[0].ailing
    for step in range(1, 5):
        chosen = next_round(space, history, batch=batch, left=8)
        assert chosen.kind == "repair"
        request = Request(space, tuple(history), chosen.kind, chosen.count, 0, step, patient=chosen.patient)
        for made in BuiltinPolicy().propose(request):
            told = answer(spec, made.values, tmp_path)
            history.append(replace(told, kind="repair", candidate=str(len(history)), base=made.base, step=step))
        if any(not trial.ailing for trial in history):
            break
    assert len(history) <= 1 + 4
    assert any(trial.cost is not None and not trial.ailing for trial in history)
