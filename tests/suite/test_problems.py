"""Which problems a suite holds, however it is named."""

import os
import shutil
from pathlib import Path

import pytest

from warpsmith.app.display import QuietDisplay
from warpsmith.app.suite.command import moved, only_suite, opened, tuned
from warpsmith.app.suite.presence import hold, wait_until_gone
from warpsmith.app.suite.problems import find_problems, parse_choice
from warpsmith.app.suite.records import SuiteManifest
from warpsmith.app.suite.settings import SuiteSettings
from warpsmith.kernels.errors import UserError
from warpsmith.sandbox.cuda.lock import take


@pytest.fixture
def kernelbench(tmp_path: Path) -> Path:
    for level, names in {1: ("19_ReLU", "2_Matmul", "100_HingeLoss"), 2: ("2_Conv_Relu",), 10: ("1_Deep",)}.items():
        folder = tmp_path / "kb" / f"level{level}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.py").write_text("")
    (tmp_path / "kb" / "level1" / "_shared.py").write_text("")
    (tmp_path / "kb" / "README.md").write_text("")
    return tmp_path / "kb"


def keys(
    *targets: str | Path, level: str | None = None, ids: str | None = None, like: tuple[str, ...] = ()
) -> list[str]:
    return [one.key for one in find_problems([str(t) for t in targets], parse_choice(level, ids, like))]


def test_kernelbench_folders_come_by_level_and_number(kernelbench: Path) -> None:
    assert keys(kernelbench) == ["L1-002_Matmul", "L1-019_ReLU", "L1-100_HingeLoss", "L2-002_Conv_Relu", "L10-001_Deep"]
    assert keys(kernelbench / "level2") == ["L2-002_Conv_Relu"]


def test_levels_numbers_and_names_choose(kernelbench: Path) -> None:
    assert keys(kernelbench, level="1,10", ids="1-20") == ["L1-002_Matmul", "L1-019_ReLU", "L10-001_Deep"]
    assert keys(kernelbench, like=("relu", "hinge")) == ["L1-019_ReLU", "L1-100_HingeLoss", "L2-002_Conv_Relu"]
    with pytest.raises(UserError, match="none of the 5 problems is chosen"):
        keys(kernelbench, level="7")


def test_a_list_names_files_with_their_sizes(kernelbench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = kernelbench / "small.txt"
    listed.write_text("# small ones\nlevel1/19_ReLU.py,rows=4,shape=(3;4)\n\nlevel1/19_ReLU.py\nlevel1/19_ReLU.py\n")
    found = find_problems([str(listed)])
    assert [one.overrides for one in found] == [{"rows": "4", "shape": "(3,4)"}, {}]
    assert found[0].key.startswith("L1-019_ReLU@")
    assert found[1].key == "L1-019_ReLU"
    assert {one.path for one in found} == {str(kernelbench / "level1" / "19_ReLU.py")}
    # Names may also be those of the folder that the command is run in.
    elsewhere = kernelbench.parent / "list.txt"
    elsewhere.write_text("19_ReLU.py\n")
    monkeypatch.chdir(kernelbench / "level1")
    assert keys(elsewhere) == ["L1-019_ReLU"]


def test_a_problem_has_its_constants_behind_a_comma_as_a_line_of_a_list_has(kernelbench: Path) -> None:
    relu = kernelbench / "level1" / "19_ReLU.py"
    listed = kernelbench / "small.txt"
    listed.write_text("level1/19_ReLU.py,rows=4,shape=(3;4)\n")
    assert find_problems([f"{relu},rows=4,shape=(3;4)"]) == find_problems([str(listed)])
    odd = relu.with_name("a,b.py")
    odd.write_text("")
    assert find_problems([str(odd)])[0].overrides == {}
    for target, words in (
        (f"{kernelbench},rows=4", "is a folder: write a list file"),
        (f"{listed},rows=4", "is a list: write a list file"),
        (f"{relu},rows", r"'rows': write PATH,NAME=LITERAL"),
        (f"{relu},rows=", r"'rows=': write PATH,NAME=LITERAL"),
        (f"{relu}x,rows=4", "no such file or folder"),
    ):
        with pytest.raises(UserError, match=words):
            find_problems([target])


def test_equal_names_and_callables_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.py").write_text("")
    found = keys(tmp_path / "a", tmp_path / "b" / "m.py", f"{tmp_path}/a/m.py:f")
    assert len(set(found)) == 3
    assert [one.split("@")[0] for one in found] == ["m", "m", "m.f"]


@pytest.mark.parametrize(
    ("level", "ids", "says"),
    [("x", None, "--level x"), (None, "3-1", "ends before it begins"), (None, "1-", "--ids 1-"), ("", None, "empty")],
)
def test_numbers_that_are_none_are_refused(level: str | None, ids: str | None, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_choice(level, ids, ())


def test_what_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        keys(tmp_path / "nothing")
    with pytest.raises(UserError, match="holds no problem"):
        keys(tmp_path)
    bad = tmp_path / "bad.txt"
    bad.write_text("\nmissing.py\n")
    with pytest.raises(UserError, match=r"bad\.txt:2: missing\.py"):
        keys(bad)
    bad.write_text("missing.py,no value\n")
    with pytest.raises(UserError, match=r"bad\.txt:1: 'no value'"):
        keys(bad)


def test_the_autotuned_sample_has_its_share_of_every_level(tmp_path: Path) -> None:
    for level, count in {1: 20, 2: 10}.items():
        folder = tmp_path / f"level{level}"
        folder.mkdir()
        for number in range(1, count + 1):
            (folder / f"{number}_P.py").write_text("")
    problems = find_problems([str(tmp_path)])
    sample = tuned(problems, 6)
    assert [sum(key.startswith(f"L{level}-") for key in sample) for level in (1, 2)] == [4, 2]
    assert tuned(problems, 6) == sample
    assert tuned(problems, 0) == ()
    assert len(tuned(problems, 500)) == 30


def test_a_suite_run_finds_its_problems_in_another_place(kernelbench: Path, tmp_path: Path) -> None:
    manifest = SuiteManifest(suite_id="s", created="", config={}, problems=find_problems([str(kernelbench / "level1")]))
    shutil.move(kernelbench, tmp_path / "elsewhere")
    found = moved(manifest, (str(tmp_path / "elsewhere"),))
    assert [one.key for one in found.problems] == [one.key for one in manifest.problems]
    assert all(Path(one.path).is_file() and "elsewhere" in one.path for one in found.problems)
    (tmp_path / "elsewhere" / "level1" / "19_ReLU.py").unlink()
    with pytest.raises(UserError, match="lacks 1 of the suite's problems \\(L1-019_ReLU"):
        moved(manifest, (str(tmp_path / "elsewhere"),))


def test_the_autotuned_sample_can_be_drawn_by_a_later_call(kernelbench: Path, tmp_path: Path) -> None:
    settings = SuiteSettings(targets=(str(kernelbench),), out=tmp_path / "runs")
    folder, _ = opened(settings)
    assert folder.manifest().autotuned == ()
    folder.close()
    more = SuiteSettings(resume=folder.folder, max_autotune=2, given=frozenset({"resume", "max_autotune"}))
    again, kept = opened(more)
    with again:
        assert len(again.manifest().autotuned) == 2
        assert (kept.targets, kept.max_autotune) == (settings.targets, 2)


def test_one_suite_at_a_time_works_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_LOCKS", str(tmp_path))
    with only_suite(["b", "a"], QuietDisplay()):
        assert take("a", purpose="suite") is None
        assert take("b", purpose="suite") is None
        with only_suite(["c"], QuietDisplay()):
            pass
    for uuid in ("a", "b"):
        handle = take(uuid, purpose="suite")
        assert handle is not None
        os.close(handle)


def test_a_suite_waits_for_the_lanes_of_an_earlier_call(tmp_path: Path) -> None:
    path = tmp_path / "lanes.lock"
    lanes = [hold(path, shared=True), hold(path, shared=True)]
    with pytest.raises(UserError, match="processes of an earlier call"):
        wait_until_gone(path, patience_s=0.1)
    for lane in lanes:
        assert lane is not None
        os.close(lane)
    wait_until_gone(path, patience_s=0.1)
    assert hold(path, shared=True) is not None
