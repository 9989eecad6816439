"""The table of counters: every source speaks its names, and what agents look at is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.scripts import benchmark

from warpsmith.agents.observation import LAG, ROLE_FIGURES, lag, role_counters
from warpsmith.kernels.device import model_for
from warpsmith.kernels.records import CompileReport, Counters, KernelResources, KernelStep, LaunchPlan, Outcome
from warpsmith.kernels.slots import ROLES
from warpsmith.tools.profiling.counters import BY_NAME, METRICS, Formula, of_role, source_of, standard, worst
from warpsmith.tools.profiling.counters_static import code_counts, static_figures
from warpsmith.tools.runs.store import RunStore

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "data" / "h200_ncu_counters.json").read_text())["kernels"]
ROW = KernelResources(registers=40, spill_stores=8, spill_loads=12, shared_bytes=512)
PTX = """
.visible .entry row(.param .u64 row_param_0)
{
\t.reg .f32 %f<3>;
\tld.param.u64 %rd1, [row_param_0];
\tfma.rn.f32 %f1, %f2, %f2, %f2;
$L__BB0_1:
\t@%p1 bra $L__BB0_1;
\tex2.approx.ftz.f32 %f1, %f1;
\tret;
}
.func helper()
{
\tret;
}
"""


def real_outcomes(run: Path) -> list[Outcome]:
    with RunStore.open(run, writable=False) as store:
        return store.outcomes()


def test_names_are_unique_and_every_role_is_shown_some() -> None:
    assert len(BY_NAME) == len(METRICS) >= 24
    assert all(metric.ncu or metric.emulated or metric.static for metric in METRICS)
    assert all(set(metric.roles) <= set(ROLES) and metric.meaning for metric in METRICS)
    assert all(list(of_role(role)) for role in ROLES)


def test_what_agents_hold_against_a_kernel_is_in_the_table() -> None:
    assert LAG.keys() <= BY_NAME.keys()
    for name, (roles, _) in LAG.items():
        assert set(roles) <= set(BY_NAME[name].roles), name
    fields = set(Outcome.model_fields)
    assert all(figure in fields for figures in ROLE_FIGURES.values() for figure in figures)


def test_a_formula_says_none_rather_than_nought() -> None:
    ratio = Formula(("a", "b"), ("c",), scale=100.0)
    assert ratio.value({"a": 1, "b": 2, "c": 4}) == 75.0
    assert ratio.value({"a": 1, "b": 2, "c": 0}) is None
    assert ratio.value({"a": 1, "c": 4}) is None
    assert ratio.text == "100 * (a + b) / c"
    assert Formula(("u",), scale=-1.0, offset=100.0).value({"u": 90.0}) == 10.0


def test_the_emulator_gives_what_the_table_asks_of_it(tmp_path: Path) -> None:
    script = benchmark("ncu_counters")
    script.compile_kernels("sm_90", tmp_path)
    raw = script.emulate(tmp_path, "sm_90")
    wanted = {name for metric in METRICS if metric.emulated for name in metric.emulated.names}
    for kernel, counts in raw.items():
        assert wanted <= counts.keys(), kernel
    found = standard("emulated", raw, {}).kernels
    assert found["coalesced_copy"]["load_sectors_per_request"] == 4.0
    assert found["strided_copy"]["load_sectors_per_request"] == 32.0
    assert found["transpose"]["bank_conflicts"] > 90.0
    assert found["padded_transpose"]["bank_conflicts"] == 0.0
    assert "bank_conflicts" not in found["coalesced_copy"]


@pytest.mark.parametrize("kernel", RECORDED)
def test_ncu_and_the_emulator_agree_by_the_tables_names(kernel: str) -> None:
    metrics = benchmark("ncu_counters").METRICS
    ncu = {metrics[name]: pair["ncu"] for name, pair in RECORDED[kernel].items()}
    emulated = {name: pair["emulated"] for name, pair in RECORDED[kernel].items()}
    measured = standard("ncu", {kernel: ncu}, {}).kernels[kernel]
    counted = standard("emulated", {kernel: emulated}, {}).kernels[kernel]
    assert measured.keys() == counted.keys() >= {"load_sectors_per_request", "store_sectors_per_request"}
    for name, value in measured.items():
        assert counted[name] == pytest.approx(value, abs=0.2), name


def test_every_candidate_of_a_run_has_counters_of_the_table(real_run: Path) -> None:
    for outcome in real_outcomes(real_run):
        assert outcome.counters is not None
        assert outcome.counters.source == "emulated"
        for figures in outcome.counters.kernels.values():
            assert figures.keys() <= BY_NAME.keys()
            assert {"occupancy", "registers", "load_sectors_per_request", "instructions", "tail"} <= figures.keys()
            assert 0 < figures["occupancy"] <= 100
            assert figures["registers"] <= (outcome.registers or 0)


def test_a_role_sees_its_own_counters_of_a_real_candidate(real_run: Path) -> None:
    outcome = real_outcomes(real_run)[0]
    for role in ROLES:
        allowed = {metric.name for metric in of_role(role)} | set(ROLE_FIGURES[role])
        assert role_counters(outcome, role).keys() <= allowed
    assert "occupancy" in role_counters(outcome, "config")
    assert all(0.0 <= value <= 1.0 for value in lag(outcome).values())


def test_static_figures_of_a_plan() -> None:
    counts = code_counts(PTX)
    assert counts == {"row": {"code_instructions": 5.0, "code_fma": 1.0, "code_sfu": 1.0}}
    small = KernelStep(kernel="row", grid=(1, 1, 1), block=(64, 1, 1), args=())
    big = KernelStep(kernel="row", grid=(1056, 1, 1), block=(256, 1, 1), shared_bytes=1024, args=())
    report = CompileReport(ok=True, arch="sm_90", nvrtc_version="13.0", cached=False, seconds=0, resources={"row": ROW})
    figures = static_figures(LaunchPlan(steps=(small, big)), report, model_for("sm_90"))["row"]
    assert (figures["launches"], figures["block_threads"], figures["shared_bytes"]) == (2, 256, 1536)
    assert figures["spill_bytes"] == 20
    assert figures["occupancy_pct"] == 75.0
    assert figures["waves"] == pytest.approx(1056 / (6 * 132))
    assert figures["tail_pct"] == pytest.approx(100 * (1 - figures["waves"] / 2))
    without = static_figures(LaunchPlan(steps=(small,)), report, None)["row"]
    assert without["registers"] == 40
    assert "occupancy_pct" not in without


def test_other_sources_are_completed_by_static_figures_and_say_so() -> None:
    counters = standard(
        "ncu", {"k": {"launch__registers_per_thread": 32.0}}, {"k": {"registers": 40.0, "tail_pct": 5.0}}
    )
    assert counters == Counters(source="ncu", kernels={"k": {"registers": 32.0, "tail": 5.0}})
    assert source_of("registers", "ncu") == "ncu"
    assert source_of("tail", "ncu") == "static"
    assert source_of("registers", "emulated") == "static"


def test_the_worst_kernel_is_shown_whichever_way_is_good() -> None:
    counters = Counters(
        source="static", kernels={"a": {"occupancy": 100.0, "spills": 0.0}, "b": {"occupancy": 25.0, "spills": 8.0}}
    )
    assert worst(counters, "occupancy") == 25.0
    assert worst(counters, "spills") == 8.0
    assert worst(counters, "ipc") is None
