"""A reference module that a model wrote: nothing runs before its text is approved, and then not in this process."""

import json
import sys
from pathlib import Path

import pytest
from reference.modules import ATTEMPTS, HONEST, module

from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import OptimizeSettings, optimize_bench
from warpsmith.app.reference import approve_reference, reopened
from warpsmith.app.workbench import bench_for
from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import SandboxError, UserError, WorkerDied, WorkerExceeded, WorkerKilled
from warpsmith.kernels.graph_json import decoded, encoded
from warpsmith.kernels.opgraph import OpGraph
from warpsmith.kernels.problem import ProblemRef, load_problem, load_ref
from warpsmith.kernels.reference.rules import reference_hash
from warpsmith.tools.jail import ended, held_problem
from warpsmith.tools.operands import operands_of

TEXT = HONEST["parameter"]


def loaded() -> list[str]:
    """Modules of problems that this process has run."""
    return [name for name in sys.modules if name.startswith("warpsmith_problem")]


def test_nothing_is_kept_or_run_without_the_approval_of_this_very_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the text that was approved"):
        approve_reference(TEXT, reference_hash(TEXT + " "), tmp_path / "kept")
    bad = ATTEMPTS["torch.load"]
    with pytest.raises(UserError, match=r"torch\.load is not among"):
        approve_reference(bad, reference_hash(bad), tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_an_approved_module_becomes_a_run_without_being_imported_here(tmp_path: Path) -> None:
    before = loaded()
    problem, approval = approve_reference(TEXT, reference_hash(TEXT), tmp_path)
    bench = bench_for(problem, device="cpu", arch=None, approval=approval)
    settings = OptimizeSettings(problem="", device="cpu", budget=2, verdicts=1, out=tmp_path / "runs")
    finished = optimize_bench(bench, settings, QuietDisplay())
    assert finished.exit_code == 0
    assert finished.result.best is not None
    assert finished.result.best.shape_specific is False
    assert loaded() == before
    config = json.loads((finished.folder / "manifest.json").read_text())["config"]
    assert config["approval"] == {"sha256": reference_hash(TEXT), "at": approval.at}
    assert "class ModelNew" in (finished.folder / "best" / "model_new.py").read_text()
    again = reopened(config)
    assert again is not None
    assert again.hash == problem.hash
    (tmp_path / "reference.py").write_text(TEXT + "\n")
    with pytest.raises(UserError, match="not the text that was approved"):
        reopened(config)


def test_what_the_jail_tells_is_what_a_trace_here_would_say(tmp_path: Path) -> None:
    problem, _ = approve_reference(TEXT, reference_hash(TEXT), tmp_path)
    (tmp_path / "own.py").write_text(TEXT)
    own = load_problem(str(tmp_path / "own.py"))
    graph = capture(own)
    here = json.dumps(encoded(graph)).replace("own.py", "reference.py")
    assert json.dumps(encoded(capture(problem))) == here
    assert operands_of(problem) == operands_of(own)
    assert problem.hash == own.hash


def test_this_process_refuses_to_run_it(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(TEXT)
    problem = load_ref(ProblemRef(kind="reference", path=str(path), approved=reference_hash(TEXT)))
    with pytest.raises(SandboxError, match="confined processes alone"):
        problem.instantiate(device="meta", seed=0)
    with pytest.raises(UserError, match="not the text that was approved"):
        held_problem(ProblemRef(kind="reference", path=str(path)))


@pytest.mark.slow
def test_a_module_that_fails_or_never_ends_is_an_error_of_the_input(tmp_path: Path) -> None:
    wrong = module("return x @ x")
    with pytest.raises(UserError, match="line 9: forward raised"):
        approve_reference(wrong, reference_hash(wrong), tmp_path)[0].graph()
    endless = module("for i in range(1000000000):\n    x = x + 1.0\nreturn x")
    path = tmp_path / "endless.py"
    path.write_text(endless)
    with pytest.raises(UserError, match="did not end within 2 s"):
        held_problem(ProblemRef(kind="reference", path=str(path), approved=reference_hash(endless)), timeout_s=2.0)


@pytest.mark.parametrize("data", [[], {"a": 1, "b": 2}, {"os": []}, {"NodeRef": {"no": 1}}, {"eval": "1"}])
def test_data_of_another_shape_makes_no_graph(data: object) -> None:
    with pytest.raises(ValueError, match="no "):
        decoded(data)


def test_a_graph_survives_its_way(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HONEST["softmax"])
    graph = capture(load_problem(str(tmp_path / "m.py")))
    back = decoded(json.loads(json.dumps(encoded(graph))))
    assert isinstance(back, OpGraph)
    assert back == graph
    with pytest.raises(TypeError, match="holds no set"):
        encoded({1, 2})


def test_only_memory_is_blamed_on_sizes() -> None:
    crashed = ended(WorkerDied("the process running facts_job ended by SIGSEGV"))
    assert "SIGSEGV" in crashed
    assert "smaller" not in crashed
    for kind in (WorkerKilled, WorkerExceeded):
        assert "make them smaller" in ended(kind("the process running facts_job ended by SIGKILL"))
