"""What a person sees of a suite: a line a finished problem, the table of what is under way, the pace."""

import io

import pytest
from rich.console import Console

from warpsmith.app.suite.records import ProblemRow, SuiteProblem
from warpsmith.app.suite.scripted import ScriptedLane
from warpsmith.app.suite.show import SuitePlain, SuiteRich, Watcher
from warpsmith.app.suite.wire import Told
from warpsmith.kernels.records import Quantiles, Speedup

NORM = SuiteProblem(key="L1-036_RMSNorm", path="/kb/level1/36_RMSNorm.py", name="36_RMSNorm", level=1, number=36)
MEASURED = ProblemRow(
    key=NORM.key, status="verified", family="column", provenance="own", precision_class="exact", screened=32,
    seconds=12.4, time_us=Quantiles(p10=3600.0, p50=3667.9, p90=3700.0, n=40), estimated_us=3000.0,
    speedup={"eager": Speedup(value=3.09, low=3.0, high=3.1), "compile": Speedup(value=1.135, low=1.1, high=1.2)},
)  # fmt: skip


def test_a_finished_problem_is_one_line_with_its_labels(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher(SuitePlain(), 20, ["verified"])
    watcher.row(NORM, MEASURED)
    watcher.row(NORM, MEASURED.model_copy(update={"time_us": None, "speedup": {}}))
    refused = "/kb/level1/36_RMSNorm.py:3: no Model\x1b[31m; define one"
    watcher.row(NORM, ProblemRow(key=NORM.key, status="refused", reason=refused))
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("[ 2/20] L1-036_RMSNorm ")
    assert first.endswith(
        "verified    3.67 ms measured; 3.09x eager; 1.14x compile; own exact column; 32 evaluated, 12 s"
    )
    assert "3.00 ms estimated; own exact column" in second
    assert third.endswith("refused     36_RMSNorm.py:3: no Model\\x1b[31m")


def test_the_table_shows_what_is_under_way_and_how_long_it_will_take() -> None:
    now = [0.0]
    display = SuiteRich()
    watcher = display.watcher = Watcher(display, 10, ["verified"], clock=lambda: now[0])
    display.console = display.live.console = Console(file=io.StringIO(), width=120)
    assert watcher.left_s() is None
    watcher.stage("search", 9)
    lane = ScriptedLane()
    watcher.started(lane, NORM, "search")
    outcome = {"level": "screen", "index": 3, "budget": 32, "best": True, "time_us": 12.5, "estimated_us": 1.0}
    watcher.told(lane, NORM, Told(kind="outcome", data=outcome))
    watcher.told(lane, NORM, Told(kind="phase", data={"text": "full verdicts: 2"}))
    now[0] = 65.0
    watcher.row(NORM, MEASURED)
    shown = Console(width=120, file=io.StringIO())
    shown.print(display._table())
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "2/10 problems · 2 verified · search · 1 evaluations, 1:05 · about 8:40 to go" in text
    assert "L1-036_RMSNorm 3/32 12.5 µs measured 65 s full verdicts: 2" in " ".join(text.split())
    watcher.ended(lane)
    assert watcher.lanes == {}
