"""Hangs are remembered with their first evidence; deadlines and infrastructure are not."""

import asyncio

from support.hostile import endless, launches
from support.hostile_batch import problems

from warpsmith.kernels.records import Failure, Outcome
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.hang_cache import HangCache
from warpsmith.tools.target import Target

TARGET = Target(kind="cpu", arch="sm_90")
HANG = endless()[0].candidate


def outcome(status: str, stage: str) -> Outcome:
    failure = Failure(stage=stage, kind="hang", message="no end after 10 s")
    return Outcome(candidate=HANG.id, problem_hash="p", status=status, failure=failure)


def test_only_hangs_that_were_seen_are_kept(tmp_path):
    cache = HangCache(tmp_path, problem_hash="p", target=TARGET)
    for status, stage in (("hang", "verify"), ("hang", "time"), ("infrastructure_error", "infrastructure")):
        cache.note(HANG, outcome(status, stage))
        assert cache.get(HANG) is None
    cache.note(HANG, outcome("hang", "launch"))
    known = cache.get(HANG)
    assert known.kind == "hang"
    assert "no end after 10 s" in known.message
    assert HangCache(tmp_path, problem_hash="other", target=TARGET).get(HANG) is None
    assert HangCache(tmp_path, problem_hash="p", target=Target(kind="cpu", arch="sm_80")).get(HANG) is None
    assert cache.get(launches()[0].candidate) is None


def test_a_torn_entry_and_a_folder_that_cannot_be_written_count_as_unknown(tmp_path):
    cache = HangCache(tmp_path, problem_hash="p", target=TARGET)
    cache.note(HANG, outcome("hang", "launch"))
    (entry,) = (tmp_path / "hangs").rglob("*.json")
    entry.write_text("{")
    assert cache.get(HANG) is None
    (tmp_path / "file").touch()
    HangCache(tmp_path / "file", problem_hash="p", target=TARGET).note(HANG, outcome("hang", "launch"))


def test_a_known_hang_is_told_again_and_not_run_again(tmp_path):
    loaded = problems(tmp_path)["softmax"]

    async def body():
        found = []
        with Compiler("sm_90", cache_dir=tmp_path / "cache", jobs=1) as compiler:
            for _ in range(2):
                async with Evaluator(loaded.ref, loaded.hash, TARGET, compiler) as evaluator:
                    found += await evaluator.evaluate([HANG], level="screen")
        return found

    first, second = asyncio.run(body())
    assert first.status == second.status == "hang"
    assert first.isolation is not None
    assert first.failure.message in second.failure.message
    assert "not run again" in second.failure.message
    assert second.verify_s is None
