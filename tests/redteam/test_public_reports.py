"""Reports that other projects got about their judges, as tests of this one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from pathlib import Path

import pytest
from redteam.arena import ARCH, HEAD, Folder, Task, attacks, candidate_of, judged, launch, written
from redteam.tasks import AFFINE, AFFINE_SOURCE, affine, over_affine
from support.processes import command, descendants, wait_until

from warpsmith.kernels.problem import load_problem
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator, Limits
from warpsmith.tools.measurement.timing import CANDIDATE, Samples, timing_report
from warpsmith.tools.target import Target

ROOT = Path(__file__).resolve().parents[2]
TARGET = Target(kind="cpu", arch=ARCH)

SLOW = affine("float s = 0.0f; for (long long k = 0; k < (1ll << 40); ++k) s += x[(i + k) % n]; if (i < n) y[i] = s;")
"""Busy for minutes, and gets ahead all the time."""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory):
    with Compiler(ARCH, cache_dir=tmp_path_factory.mktemp("cache"), jobs=1) as shared:
        yield shared


@pytest.mark.parametrize(
    ("report", "names"),
    [
        ("reference-kernels #148", ["t10_pointer_keyed_cache", "c36_scratch_as_memory"]),  # 27 and 31
        ("reference-kernels #142", ["t20_clock_phase"]),  # 29
        ("llm.c #852", ["c36_call_counter"]),  # 35
        ("GEAK #462", ["c24_name_with_a_path"]),  # 43
    ],
)
def test_reports_about_kernels_are_attacks(report: str, names: list[str]) -> None:
    known = {attack.name for attack in attacks()}
    for name in names:
        assert name in known
        assert report in (ROOT / "tests" / "redteam" / "attacks" / f"{name}.py").read_text()


# 3: KernelBench #161, #155: a checker by words refuses honest code for `pass`, `try` and the like.

HONEST_WORDS = Task(
    "honest_words",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass
    def forward(self, x):
        try:
            return x * 3 + 1
        except RuntimeError:
            raise
def get_inputs():
    return [torch.randn(1500)]
def get_init_inputs():
    return []
""",
    AFFINE.honest,
)
WORDY = """
// First pass: try to catch inf; printf, asm, clock64, malloc, __trap and #include are words here, and no code.
/* static __device__ float kept[10]; goto end; template extern "C" */
__device__ __forceinline__ float try_pass(float asm_like_name) { return asm_like_name; }
""" + AFFINE_SOURCE.replace("x[i] * 3.0f", "try_pass(x[i]) * 3.0f")


def test_words_of_honest_code_are_no_offence(tmp_path: Path, compiler: Compiler) -> None:
    entries = {"plain": HONEST_WORDS.honest, "wordy": Folder(WORDY, launch(over_affine()))}
    found = judged(HONEST_WORDS, entries, tmp_path / "honest", compiler, TARGET)
    assert {name: str(finding) for name, finding in found.items() if finding.status != "ok"} == {}


# 9: KernelBench #71: an index from 1 met a list from 0, and problems were taken for their neighbours.


def test_a_problem_is_what_its_file_says(tmp_path: Path) -> None:
    texts = {1: "x * 3 + 1", 10: "x * 3 + 10", 100: "x * 3 + 100"}
    for number, text in texts.items():
        (tmp_path / f"{number}_affine.py").write_text(HEAD + AFFINE.text.replace("x * 3 + 1", text))
    problems = {number: load_problem(str(tmp_path / f"{number}_affine.py")) for number in texts}
    assert len({problem.hash for problem in problems.values()}) == 3
    for number, problem in problems.items():
        (result,) = problem.instantiate(seed=1).run()
        (given,) = problem.instantiate(seed=1).inputs
        assert float((result - given * 3).round().unique()) == number
    (tmp_path / "copy.py").write_text((tmp_path / "100_affine.py").read_text())
    assert load_problem(str(tmp_path / "copy.py")).hash == problems[100].hash


# 21: flashinfer-bench #419, #48: a worker that came back had a stale handle to its baseline.
# 33: kernelbot #508, #515: jobs that a shutdown interrupted were reported to nobody.


def below(processes: list[int]) -> list[int]:
    """Those that another one of them has started."""
    return [pid for pid in processes if any(pid in descendants(other) for other in processes)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_worker_is_told_and_the_next_one_has_its_references(
    number: signal.Signals, tmp_path: Path, compiler: Compiler
) -> None:
    problem = written(AFFINE, tmp_path)
    entries = {"slow": Folder(SLOW, launch(over_affine(grid=4000))), "good": AFFINE.honest}
    entries["bad"] = Folder(affine("if (i < n) y[i] = x[i];"), launch(over_affine()))
    made = {name: candidate_of(entry, problem, tmp_path / name) for name, entry in entries.items()}

    def runners() -> list[int]:
        ours = [pid for pid in descendants(os.getpid()) if "warpsmith.sandbox.process" in command(pid)]
        # The outermost made the imports, those below it are nurseries.
        return below(below(ours))

    async def body():
        limits = Limits(verify_s=60)
        async with Evaluator(problem.ref, problem.hash, TARGET, compiler, limits=limits) as evaluator:
            before = (await evaluator.evaluate([made["good"]], level="full"))[0]
            task = asyncio.create_task(evaluator.evaluate([made["slow"]], level="full"))
            kills = 0
            while not task.done():
                await asyncio.sleep(0.3)
                found = runners()
                for pid in found:
                    os.kill(pid, number)
                kills += bool(found)
                # Killed by somebody, it says nothing about the candidate the first time: it is judged again.
                await asyncio.wait([task], timeout=5)
            ended = (await task)[0]
            assert kills == (2 if number == signal.SIGKILL else 1), (ended.status, ended.failure)
            after = (await evaluator.evaluate([made["bad"]], level="full"))[0]
            again = (
                await evaluator.evaluate(
                    [made["good"].model_copy(update={"source": AFFINE_SOURCE + "\n"})], level="full"
                )
            )[0]
            return before, ended, after, again

    before, ended, after, again = asyncio.run(body())
    assert before.status == again.status == "ok"
    # Killed while it was being started, the process is at fault, and nothing is said of the candidate.
    assert ended.status in ("crashed", "infrastructure_error"), ended
    assert ended.failure is not None
    assert "ended" in ended.failure.message
    assert after.status == "wrong"
    assert wait_until(lambda: not runners(), 60)


# 39 (GEAK #389) and T21: baseline and candidate exchanged. T22: a speed-up for what was never timed.


def test_a_kernel_of_half_the_time_is_twice_as_fast() -> None:
    taken = {CANDIDATE: (5.0,) * 40, "eager": (10.0,) * 40, "compile": (2.5,) * 40}
    report = timing_report(Samples(device="d", method="events", samples=taken))
    assert report is not None
    assert report.time_us.p50 == 5.0
    assert report.speedup["eager"].value == 2.0
    assert report.speedup["compile"].value == 0.5
    assert report.baseline_us["eager"].p50 == 10.0


def test_what_was_not_timed_has_no_figure(tmp_path: Path, compiler: Compiler) -> None:
    assert timing_report(Samples(device="d", method="events", samples={"eager": (10.0,) * 40})) is None
    entries = {"good": AFFINE.honest, "bad": Folder(affine("if (i < n) y[i] = x[i];"), launch(over_affine()))}
    entries["broken"] = Folder("nonsense", launch(over_affine()))
    found = judged(AFFINE, entries, tmp_path / "untimed", compiler, TARGET)
    for finding in found.values():
        assert finding.outcome is not None
        assert finding.outcome.time_us is None
        assert finding.outcome.speedup is None
        assert finding.outcome.roofline_fraction is None


# 43: GEAK #462, AgentKernelArena #36: agents edited the harness, or the measurement lay in their file.


def test_judging_leaves_harness_and_candidate_as_they_were(tmp_path: Path, compiler: Compiler) -> None:
    def digest(folder: Path, pattern: str) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob(pattern))
            if path.is_file() and "__pycache__" not in path.parts
        }

    harness = {name: digest(ROOT / name, "*.py") for name in ("kernels", "sandbox", "tools", "app")}
    hostile = [attack for attack in attacks() if attack.name in ("c24_shadow_modules", "c39_verdict_left_beside")]
    assert len(hostile) == 2
    for attack in hostile:
        folder = tmp_path / attack.name
        problem = written(attack.task, folder)
        candidate_of(attack.entry, problem, folder / "candidate")
        before = digest(folder, "*")
        finding = judged(attack.task, {"again": attack.entry}, folder / "judged", compiler, TARGET)["again"]
        assert finding.status == "wrong"
        assert digest(folder, "*").items() >= before.items()
        assert set(digest(folder / "judged" / "again", "*")) == set(digest(folder / "candidate", "*"))
    assert {name: digest(ROOT / name, "*.py") for name in harness} == harness
