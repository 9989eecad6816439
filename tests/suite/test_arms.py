"""Policies side by side: scores from costs, and the whole command on the emulator, stopped and gone on with."""

import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import started
from support.problems import problem
from support.slow_search import new_store

from warpsmith.app.arms.against import candidates_in, named
from warpsmith.app.arms.command import BUDGET_ENDED, ComparisonSettings, run_comparison
from warpsmith.app.arms.scores import Search, costs_of, scores
from warpsmith.app.display import QuietDisplay
from warpsmith.app.suite.problems import find_problems
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Outcome

ROOT = Path(__file__).resolve().parents[2]


def test_a_score_is_the_best_of_all_over_the_best_so_far() -> None:
    searches = [
        Search("one", 0, "a", (None, 4.0, 2.0)),
        Search("one", 1, "a", (4.0, 4.0, 4.0)),
        Search("two", 0, "a", (8.0, None, 1.0)),
        Search("two", 0, "b", (None, None)),
    ]
    found = scores(searches, (1, 2, 3))
    assert found["one"].mean == pytest.approx({1: 0.125, 2: 0.25, 3: 0.375})
    assert found["one"].error == pytest.approx({1: 0.125, 2: 0.0, 3: 0.125})
    # Nobody found anything for the second problem: it says nothing about anybody.
    assert found["two"].mean == pytest.approx({1: 0.125, 2: 0.125, 3: 1.0})
    assert found["two"].error == {1: None, 2: None, 3: None}
    assert found["one"].problems == {"a": pytest.approx(0.375)}


def test_what_a_full_verdict_finds_wrong_costs_nothing_that_counts(tmp_path: Path) -> None:
    def told(candidate: str, status: str, us: float) -> Outcome:
        return Outcome(
            candidate=candidate, problem_hash="p", status=status, verified_on="emulator:sm_90", estimated_us=us
        )

    with new_store(tmp_path) as store:
        for outcome, level in (
            (told("quick", "screened", 1.0), "screen"), (told("slow", "screened", 4.0), "screen"),
            (told("lost", "screened", 8.0), "screen"), (told("quick", "wrong", 1.0), "full"),
            (told("lost", "infrastructure_error", 8.0), "full"), (told("slow", "ok", 4.0), "full"),
        ):  # fmt: skip
            store.append_outcome(outcome, level)
        folder = store.folder
    assert costs_of(folder) == (None, 4.0, 8.0)


def test_folders_of_candidates_have_names_of_their_own(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("x/cand", "y/cand", "x/builtin", "z/hand")]
    found = named(folders, ("builtin", "random"))
    assert list(found) == ["x/cand", "y/cand", "x/builtin", "hand"]
    assert [str(path) for path in found.values()] == folders
    with pytest.raises(UserError, match="twice"):
        named([folders[0], folders[0]], ())


def test_candidates_are_found_by_name(tmp_path: Path) -> None:
    for name in ("soft", "other"):
        (tmp_path / f"{name}.py").write_text(problem())
    problems = find_problems([str(tmp_path / "soft.py"), str(tmp_path / "other.py")])
    with pytest.raises(UserError, match=r"no kernel\.cu in it"):
        candidates_in(tmp_path, problems)
    (tmp_path / "soft").mkdir()
    (tmp_path / "soft" / "kernel.cu").touch()
    assert list(candidates_in(tmp_path, problems).values()) == [tmp_path / "soft"]
    with pytest.raises(UserError, match="is one candidate and the suite has 2"):
        candidates_in(tmp_path / "soft", problems)


def test_what_contradicts_a_comparison_that_goes_on_is_told(tmp_path: Path) -> None:
    (tmp_path / "soft.py").write_text(problem())
    suite = (str(tmp_path / "soft.py"),)
    config = {"device": "cpu", "arch": None, "verdicts": 1, "workers": 1, "jobs": 1, "baselines": None}
    made = ComparisonSettings("builtin", suite, budget=2, minutes=0.0, out=tmp_path, config=config)
    assert run_comparison(made, QuietDisplay()) == BUDGET_ENDED
    (folder,) = tmp_path.glob("*-evaluate-*")
    again = replace(
        made, resume=folder, config=config | {"jobs": 2}, given=frozenset({"jobs", "budget", "suite", "out"})
    )
    assert run_comparison(again, QuietDisplay()) == BUDGET_ENDED
    for more, words in (
        ({"budget": 3, "given": {"budget"}}, "--budget 3 is given, the comparison has 2"),
        ({"config": config | {"verdicts": 2}, "given": {"verdicts"}}, "--verdicts 2 is given, the comparison has 1"),
        ({"versus": ("random",), "given": {"versus"}}, "--versus random is given, the comparison has none"),
        ({"suite": ("other.py",), "given": {"suite"}}, r"SUITE other\.py is given"),
    ):
        with pytest.raises(UserError, match=words):
            run_comparison(replace(again, **more), QuietDisplay())  # type: ignore[arg-type]


@pytest.mark.slow
def test_policies_and_a_kernel_written_by_hand_on_one_problem(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("handwritten", ROOT / "benchmarks" / "handwritten.py")
    assert spec is not None
    assert spec.loader is not None
    handwritten = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(handwritten)
    (tmp_path / "soft.py").write_text(problem("torch.softmax(x, dim=1)", "torch.randn(16, 300)"))
    handwritten.write(tmp_path / "hand", str(tmp_path / "soft.py"), "softmax")
    cached = os.environ | {"WARPSMITH_CACHE": str(tmp_path / "cache")}
    words = ["evaluate", "builtin", str(tmp_path / "soft.py"), "--versus", "default", "--seeds", "1", "--budget", "2"]
    more = ["--device", "cpu", "--workers", "1", "--verdicts", "1", "--json"]
    stopped = started((*words, *more, "--minutes", "0"), tmp_path, cached)
    assert stopped.returncode == 3, stopped.stderr
    folder = json.loads(stopped.stdout)["comparison"]
    more = ["--against", str(tmp_path / "hand"), "--json"]
    done = started(("evaluate", "builtin", "--resume", folder, *more), tmp_path, cached)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["complete"]
    assert list(found["arms"]) == ["builtin", "default", "hand"]
    assert found["against"] == {"hand": {"soft": "ok"}}
    assert max(arm["mean"]["2"] for arm in found["arms"].values()) == 1.0
    assert found["arms"]["builtin"]["mean"]["2"] >= found["arms"]["default"]["mean"]["2"]
    assert found["arms"]["builtin"]["verified"] == 1
    refused = started(("evaluate", "random", "--resume", folder), tmp_path, cached)
    assert refused.returncode == 2
    assert "compares builtin, not random" in refused.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "on what?"),
        (("soft.py", "--tables", "."), "two comparisons"),
        (("soft.py", "--versus", "luck"), "unknown policy"),
        pytest.param(("--resume", "."), "is no comparison", marks=pytest.mark.slow),
        pytest.param(("soft.py", "--at", "none"), "numbers of evaluations", marks=pytest.mark.slow),
        pytest.param(("soft.py", "--against", "."), "named like a problem", marks=pytest.mark.slow),
    ],
)
def test_bad_flags_name_the_remedy(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "soft.py").write_text(problem())
    done = started(("evaluate", "builtin", *words), tmp_path, os.environ | {"WARPSMITH_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert not list(tmp_path.glob("runs/*"))
