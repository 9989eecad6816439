"""The report: one page that loads nothing, tells the facts of a run, and shows untrusted text as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.command import command
from support.slow_search import new_store

from warpsmith.app.report import page, write_report
from warpsmith.app.report_facts import gather
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import (
    Buffer,
    Candidate,
    Counters,
    Failure,
    KernelStep,
    LaunchPlan,
    LibraryStep,
    Outcome,
    Quantiles,
    RunManifest,
    Speedup,
)  # fmt: skip
from warpsmith.tools.runs.store import RunStore

EVIL = "</script><img src=x onerror=alert(1)>\"'{{7919*7927}}<!--"
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "h3", "p", "nav", "a", "div",
    "span", "section", "ul", "li", "ol", "dl", "dt", "dd", "strong", "em", "i", "b", "code", "pre", "table", "caption",
    "thead", "tbody", "tr", "th", "td", "button", "label", "select", "option", "input", "figure", "figcaption",
    "details", "summary", "svg", "path", "circle", "text", "script", "footer",
}  # fmt: skip
VOID = {"meta", "input"}


class Page(HTMLParser):
    """Elements, attributes, text and nesting of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [value or "" for _, attribute, value in self.attributes if attribute == name]


def check(text: str) -> Page:
    """Asserts what holds of every report."""
    found = Page(text)
    assert found.open == []
    assert set(found.tags) <= TAGS, set(found.tags) - TAGS
    assert found.tags.count("script") == 1
    assert not [name for _, name, _ in found.attributes if name.startswith("on") or name in ("src", "srcset", "action")]
    assert all(value.startswith("#") and value[1:] in found.values("id") for value in found.values("href"))
    loaded = [value or "" for _, name, value in found.attributes if name != "http-equiv"]
    assert not [value for value in loaded if "http" in value]
    assert not re.search(r"url\(|@import", text)
    digest = base64.b64encode(hashlib.sha256(found.scripts[0].encode()).digest()).decode()
    policy = next(value for value in found.values("content") if "default-src" in value)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    return found


def facts_of(run: Path) -> dict[str, Any]:
    with RunStore.open(run, writable=False, skip_broken=True) as store:
        return gather(store)


def finished(store: RunStore, candidate: Candidate, **more: Any) -> Outcome:
    """A measured full verdict on a candidate, stored."""
    store.put_candidate(candidate)
    plain: dict[str, Any] = {
        "candidate": candidate.id, "problem_hash": "0", "status": "ok", "verified_on": "gpu:NVIDIA H200",
        "provenance": "hybrid", "family": candidate.family, "slots": candidate.values, "error_ratio": 1.0,
        "max_abs_error": 1e-7, "time_us": Quantiles(p10=9.0, p50=10.0, p90=11.0, n=64),
        "speedup": {"eager": Speedup(value=2.0, low=1.9, high=2.1)}, "registers": 32, "spills": 0, "shared_bytes": 0,
    }  # fmt: skip
    outcome = Outcome(**(plain | more))
    store.append_outcome(outcome, "full")
    return outcome


def test_optimize_leaves_a_report_of_its_run(real_run: Path) -> None:
    text = (real_run / "report.html").read_text()
    found = check(text)
    facts = facts_of(real_run)
    assert facts["counts"]["candidates"] == 6
    best = json.loads((real_run / "best" / "verdict.json").read_text())
    assert facts["winner"]["outcome"] == best
    assert best["candidate"] in found.text
    assert "emulator:sm_90" in found.text
    assert "estimated by the cost model, not measured: no speed-up is claimed" in found.text
    assert "cols=96" in found.text
    assert "residency" in found.text
    assert "sectors a warp's global load touches" in found.text
    assert all(row["candidate"][:10] in text for row in facts["candidates"])
    assert found.tags.count("svg") >= 3
    assert "trivial answers tried, none taken for right" in found.text
    assert facts["machine"]["isolation"] in ("strict", "user", "bare")


def test_the_command_writes_it_and_json_prints_the_same_facts(real_run: Path, tmp_path: Path) -> None:
    done = command("report", real_run, "--to", tmp_path / "page.html", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "page.html"))
    check((tmp_path / "page.html").read_text())
    printed = command("report", real_run, "--json", cwd=tmp_path)
    assert json.loads(printed.stdout) == json.loads(json.dumps(facts_of(real_run)))


def test_the_winner_is_held_against_the_naive_kernel_and_its_ancestors(real_run: Path) -> None:
    winner = facts_of(real_run)["winner"]
    slots = {row["slot"]: row for row in winner["slots"]}
    assert slots["threads"]["owner"] == "config"
    assert slots["threads"]["naive"] is not None
    assert slots["threads"]["sensible"] is not None
    assert winner["lineage"][-1]["candidate"] == winner["outcome"]["candidate"]
    assert winner["lineage"][0]["gain"] is None
    for before, step in zip(winner["lineage"], winner["lineage"][1:], strict=False):
        assert step["gain"] == pytest.approx(before["cost_us"] / step["cost_us"])
        assert step["changes"]
    assert all(one["ratio"] >= 1.0 for one in winner["against"])
    roof = winner["roofline"]
    assert roof["fraction"] == pytest.approx(roof["floor_us"] / winner["cost_us"])
    assert roof["bytes"] == 2 * 4 * 96 * 4
    assert winner["cost_is"] == "estimated"


def test_the_source_marks_the_slots(real_run: Path) -> None:
    winner = facts_of(real_run)["winner"]
    with RunStore.open(real_run, writable=False) as store:
        candidate = store.get_candidate(winner["outcome"]["candidate"])
    assert [line["text"] for line in winner["source"]] == candidate.source.splitlines()
    first, last = candidate.slot_lines["post"]
    assert {line["slot"] for line in winner["source"][first - 1 : last]} == {"post"}
    assert winner["source"][0]["slot"] is None


def test_the_commands_reproduce_the_run(real_run: Path, tmp_path: Path) -> None:
    commands = {one["what"]: one["command"] for one in facts_of(real_run)["reproduce"]}
    assert "--set cols=96" in commands["The search again"]
    assert "--budget 6" in commands["The search again"]
    assert "'" in commands["The search again"], "a path with a space is quoted"
    assert "best" in commands["The winner judged again"]


def test_five_hundred_candidates_stay_small_and_quick_to_read(large_run: RunStore) -> None:
    path = write_report(large_run)
    text = path.read_text()
    assert path.stat().st_size < 500_000
    found = check(text)
    facts = gather(large_run)
    assert len(facts["candidates"]) == 500
    assert found.tags.count("tr") > 500
    assert "measured" in found.text
    assert "as fast (95 % interval" in found.text
    assert {group["kind"] for group in facts["failures"]} == {"mismatch", "spill"}
    assert "residency=reread" in found.text


def test_the_same_run_gives_the_same_page(large_run: RunStore) -> None:
    assert page(gather(large_run)) == page(gather(large_run))


def test_untrusted_text_is_text(tmp_path: Path) -> None:
    with RunStore.create("evil", tmp_path) as store:
        store.write_manifest(
            RunManifest(
                run_id=store.run_id, created=EVIL, versions={EVIL: EVIL}, commit=EVIL, device=EVIL, arch=EVIL,
                config={"given": EVIL, "overrides": {EVIL: EVIL}, "policy": EVIL, "inputs": EVIL}, driver=EVIL, seed=0,
                problem_hash=EVIL, problem_path=EVIL, audit={EVIL: [EVIL], "tried": [EVIL], "accepted": [EVIL]},
                isolation={"profile": EVIL, "layers": {EVIL: EVIL}},
            )
        )  # fmt: skip
        step = KernelStep(kernel=EVIL, grid=(1, 1, 1), block=(1, 1, 1), args=(EVIL,))
        library = LibraryStep(library=EVIL, args=(), out=EVIL)
        plan = LaunchPlan(buffers={EVIL: Buffer(dtype=EVIL, shape=(1,))}, steps=(step, library))
        source = f"// {EVIL}\n{EVIL}\n"
        candidate = Candidate(
            source=source, plan=plan, family=EVIL, values={EVIL: EVIL, "code": source}, slot_lines={EVIL: (2, 2)}
        )  # fmt: skip
        counters = Counters(source="ncu", kernels={EVIL: {"registers": 8.0}})
        blob = store.put_blob(json.dumps({"samples": {EVIL: [1.0, 2.0]}}).encode())
        finished(
            store, candidate, counters=counters, warnings=(EVIL,), speedup={EVIL: Speedup(value=2, low=1, high=3)},
            samples=blob, own_share=0.5, steps_us=(5.0, 5.0), verified_on=EVIL, isolation=EVIL,
        )  # fmt: skip
        failure = Failure(stage="verify", kind=EVIL, slot=EVIL, message=EVIL)
        lost = Outcome(
            candidate=EVIL, problem_hash="0", status="wrong", family=EVIL, slots={"x": EVIL}, failure=failure
        )  # fmt: skip
        store.append_outcome(lost, "screen")
        store.event("outcome", level="screen", candidate=EVIL, role=EVIL)
        text = page(gather(store))
    found = check(text)
    assert "<img" not in text
    assert text.count("</script>") == 1
    assert EVIL in "".join(found.words)
    assert "62773913" not in found.text, "text is no template"


def test_a_measured_winner_shows_its_intervals_provenance_and_samples(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        plan = LaunchPlan(
            steps=(
                LibraryStep(library="mm", args=("in0", "in1"), out="tmp0"),
                KernelStep(kernel="scale", grid=(4, 1, 1), block=(64, 1, 1), args=("tmp0", {"f32": 2.0}, "out0")),
            ),
            buffers={"tmp0": Buffer(dtype="float32", shape=(4, 4))},
        )
        samples = store.put_blob(
            json.dumps({"samples": {"candidate": [9.0, 10.0, 11.0], "eager": [20.0] * 900}}).encode()
        )
        finished(store, Candidate(source="// k", plan=plan), own_share=0.25, steps_us=(7.5, 2.5), samples=samples)
        facts = gather(store)
        found = check(page(facts))
    assert "own kernels take 25.0% of the device time, measured over 2 steps" in found.text
    assert "2.00× as fast (95 % interval 1.90× to 2.10×, n = 64)" in found.text
    steps = facts["winner"]["plan"]["steps"]
    assert [(step["own"], step["share"]) for step in steps] == [(False, 0.75), (True, 0.25)]
    assert len(facts["winner"]["samples"]["eager"]) <= 400
    assert "Raw samples" in found.text
    assert "estimated" not in found.text.split("Warpsmith")[0]


@pytest.mark.parametrize("blob", ["", "[]", "{}", '{"samples": {"a": "x"}}', '{"samples": {"a": [null]}}'])
def test_samples_that_cannot_be_read_take_nothing_else(tmp_path: Path, blob: str) -> None:
    with new_store(tmp_path) as store:
        step = KernelStep(kernel="k", grid=(1, 1, 1), block=(1, 1, 1), args=())
        finished(store, Candidate(source="", plan=LaunchPlan(steps=(step,))), samples=store.put_blob(blob.encode()))
        check(page(gather(store)))


def test_the_audits_warnings_come_first(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        audit = {"tried": ["zeros", "a constant"], "accepted": ["zeros"], "payable": False}
        store.write_manifest(store.manifest().model_copy(update={"audit": audit}))
        step = KernelStep(kernel="k", grid=(1, 1, 1), block=(1, 1, 1), args=())
        finished(store, Candidate(source="", plan=LaunchPlan(steps=(step,))))
        found = check(page(gather(store)))
    warning = "this problem cannot tell zeros from a right answer"
    assert found.text.index(warning) < found.text.index("Fastest verified candidate")
    assert "2 trivial answers tried, 1 taken for right" in found.text


def test_a_run_in_which_nothing_passed(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        failure = Failure(stage="compile", kind="error", message="no")
        for name in "ab":
            lost = Outcome(candidate=name, problem_hash="0", status="compile_error", failure=failure, slots={"x": name})
            store.append_outcome(lost, "screen")
        found = check(page(gather(store)))
    assert "Nothing verified" in found.text
    assert "No passing candidate of the same family to compare with" in found.text


def test_a_winner_whose_blob_is_gone_is_still_reported(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        step = KernelStep(kernel="k", grid=(1, 1, 1), block=(1, 1, 1), args=())
        outcome = finished(store, Candidate(source="", plan=LaunchPlan(steps=(step,))))
        (store.folder / "blobs" / f"{outcome.candidate}.json").unlink()
        facts = gather(store)
        check(page(facts))
    assert facts["winner"]["plan"] is None
    assert facts["winner"]["lineage"] == []


def test_bad_input_is_refused_with_the_remedy(tmp_path: Path, real_run: Path) -> None:
    with new_store(tmp_path) as store:
        empty = store.folder
    for words, told in (
        (("report", tmp_path / "nowhere"), "no run folder"),
        (("report", empty), "holds no result yet"),
        (("report", real_run, "--to", tmp_path), "is a folder"),
    ):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr
    with pytest.raises(UserError), RunStore.open(empty, writable=False) as again:
        gather(again)


def test_a_broken_line_is_named_on_the_page(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        step = KernelStep(kernel="k", grid=(1, 1, 1), block=(1, 1, 1), args=())
        finished(store, Candidate(source="", plan=LaunchPlan(steps=(step,))))
        folder = store.folder
    results = folder / "results.jsonl"
    results.write_text("{half\n" + results.read_text() + '{"torn": ')
    (folder / "events.jsonl").write_text("garbage\n")
    assert command("report", folder, cwd=tmp_path).returncode == 0
    found = check((folder / "report.html").read_text())
    assert "results.jsonl:1 is not an outcome" in found.text
    assert "torn" not in found.text


def test_a_run_that_was_ended_before_its_verdicts_says_so(real_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "ended"
    shutil.copytree(real_run, run)
    for name, wanted in (("results.jsonl", "status"), ("events.jsonl", None)):
        kept = []
        for line in (run / name).read_text().splitlines():
            record = json.loads(line)
            status = record["status"] if wanted else record["data"].get("level", "screen")
            if status not in ("ok", "full"):
                kept.append(line)
        (run / name).write_text("".join(f"{line}\n" for line in kept))
    shutil.rmtree(run / "best")
    text = page(gather(RunStore.open(run, writable=False)))
    assert "none has been given a full verdict" in text
    assert "none passed the full verdict" not in text
