"""Role agents against one agent on problems that are judged live: every search of a problem side by side, in lockstep.

usage: python benchmarks/agents_live.py FILE[,NAME=LITERAL...] ... --to DIR [--device auto] [--seeds 5] [--budget 24]
           [--seconds S] [--out docs/results/agents_live.md] [--note TEXT] [--recorded]

Slot policies learn within one search from nothing, as in agents_study.py, but each proposal is compiled, checked and
timed (level screen). The searches of a problem take turns together: what all of them propose next is judged as one
batch, equal proposals once. DIR has a run for each problem, which a later call looks verdicts up in, and
searches.jsonl, a line for each search that is over. `--seconds` ends the call behind the batch in which it is over.
`--recorded` needs no device: searches of the same seeds ask for the same again, and DIR's verdicts answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from agents_study import SETTINGS, entropies, escapes
from agents_study_page import SINGLE, TEAM
from record_space import opened

from warpsmith.agents.play import play
from warpsmith.agents.policy import Policy, Trial, trial_of
from warpsmith.agents.registry import make_policy
from warpsmith.agents.slots.policy import SlotPolicy
from warpsmith.agents.space import SearchSpace, SpecSpace
from warpsmith.app.workbench import open_bench, roof_for, specs_of
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.slots import Values
from warpsmith.rl.single import one_agent
from warpsmith.rl.slots.training import trainee
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.runs.store import RunStore

RANDOM = "random"
ARMS = (RANDOM, TEAM, SINGLE)
AT = (4, 8, 16, 24, 48, 96)


class Over(Exception):
    """The call's time is over."""


class Lockstep:
    """Answers searches of several threads: once all of them wait, what they ask for is judged as one batch."""

    def __init__(self, searches: int) -> None:
        self._ready = threading.Condition()
        self._waiting: list[tuple[Values, Future[Trial]]] = []
        self._left = searches

    def answer(self, values: Values) -> Trial:
        """Called by a search; waits for the batch. Raises `Over`."""
        told: Future[Trial] = Future()
        with self._ready:
            self._waiting.append((values, told))
            self._ready.notify()
        return told.result()

    def end(self) -> None:
        """A search is over, whichever way."""
        with self._ready:
            self._left -= 1
            self._ready.notify()

    def asked(self) -> list[tuple[Values, Future[Trial]]]:
        """The next batch; empty where all searches are over."""
        with self._ready:
            self._ready.wait_for(lambda: len(self._waiting) >= self._left)
            batch, self._waiting = self._waiting, []
            return batch


def policy_of(arm: str) -> Policy:
    """What proposes in an arm's searches."""
    return make_policy(RANDOM) if arm == RANDOM else trainee(SETTINGS[arm], ())


def space_of(spec: KernelSpec, arm: str) -> SearchSpace:
    """Slots as an arm's searches see them."""
    return one_agent(SpecSpace(spec)) if arm == SINGLE else SpecSpace(spec)


def search(spec: KernelSpec, arm: str, seed: int, budget: int, lockstep: Lockstep) -> list[Trial]:
    """One search. Raises `Over`."""
    try:
        return play(space_of(spec, arm), policy_of(arm), lockstep.answer, budget=budget, seed=seed)
    finally:
        lockstep.end()


async def judged(lockstep: Lockstep, spec: KernelSpec, judge: Evaluator, store: RunStore, until: float) -> None:
    """Batch after batch until no search is left, or none is answered any more."""
    while batch := await asyncio.to_thread(lockstep.asked):
        if time.monotonic() > until:
            for _, told in batch:
                told.set_exception(Over())
            continue
        made: dict[str, Candidate] = {}
        names = []
        for values, _ in batch:
            candidate = spec.emit(values)
            made[candidate.id] = candidate
            names.append(candidate.id)
        try:
            outcomes = {one.candidate: one for one in await judge.evaluate(list(made.values()), level="screen")}
        except Exception as error:
            # Whoever waits would wait for ever.
            for _, told in batch:
                told.set_exception(error)
            continue
        for outcome in outcomes.values():
            if store.outcome(outcome.candidate, "screen") is None:
                store.append_outcome(outcome, "screen")
        for (values, told), name in zip(batch, names, strict=True):
            told.set_result(trial_of(outcomes[name], values, "joint", role=None, base=None, step=0))


def searched(text: str, to: Path, wanted: argparse.Namespace, until: float) -> list[dict[str, Any]]:
    """Lines of all searches of a problem; none where the time was over before they were."""
    path, *pairs = text.split(",")
    bench = open_bench(
        path, device=wanted.device, arch=None, overrides=dict(pair.split("=", 1) for pair in pairs), inputs=None,
        mode="eval", jobs=wanted.jobs,
    )  # fmt: skip
    spec = next(iter(specs_of(bench).values()))
    specs, name = {spec.family.name: spec}, Path(path).stem
    work = [(arm, seed) for seed in range(wanted.seed, wanted.seed + wanted.seeds) for arm in ARMS]
    lockstep = Lockstep(len(work))

    async def run(store: RunStore) -> None:
        async with bench.evaluator(specs, store, roof_for(specs, bench.machine)) as judge:
            await judged(lockstep, spec, judge, store, until)

    with opened(to / "runs" / name, bench, name) as store, bench.compiler, ThreadPoolExecutor(len(work)) as pool:
        running = [pool.submit(search, spec, arm, seed, wanted.budget, lockstep) for arm, seed in work]
        asyncio.run(run(store))
        if any(isinstance(one.exception(), Over) for one in running):
            return []
        label = {"problem": name, "family": spec.family.name, "device": bench.machine.label, "budget": wanted.budget}
        found = zip(work, running, strict=True)
        return [label | {"arm": arm, "seed": seed} | told(spec, arm, one.result()) for (arm, seed), one in found]


def recorded(text: str, to: Path, wanted: argparse.Namespace) -> list[dict[str, Any]]:
    """As `searched`, with the verdicts of the problem's run in DIR for a judge. UserError where there is none."""
    name = Path(text.split(",")[0]).stem
    with RunStore.open(next((to / "runs" / name).iterdir()), writable=False) as store:
        manifest, known = store.manifest(), {one.candidate: one for one in store.outcomes()}
    pairs = dict(pair.split("=", 1) for pair in text.split(",")[1:])
    bench = open_bench(
        text.split(",")[0], device="cpu", arch=manifest.arch, overrides=pairs, inputs=None, mode="eval",
    )  # fmt: skip
    spec = next(iter(specs_of(bench).values()))

    def answer(values: Values) -> Trial:
        return trial_of(known[spec.emit(values).id], values, "joint", role=None, base=None, step=0)

    label = {"problem": name, "family": spec.family.name, "device": manifest.device, "budget": wanted.budget}
    found = []
    for seed in range(wanted.seed, wanted.seed + wanted.seeds):
        for arm in ARMS:
            trials = play(space_of(spec, arm), policy_of(arm), answer, budget=wanted.budget, seed=seed)
            found.append(label | {"arm": arm, "seed": seed} | told(spec, arm, trials))
    return found


def told(spec: KernelSpec, arm: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """What a search's line holds of its trials."""
    found = {"cost": [trial.cost for trial in trials], "escapes": escapes(trials)}
    policy = policy_of(arm)
    if isinstance(policy, SlotPolicy):
        at = [count for count in AT if count <= len(trials)]
        found |= {"entropy": entropies(policy, space_of(spec, arm), trials, at)}
    return found


def main() -> int:
    """Exit status 0; 1 where the time was over before all searches were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--note", default="")
    parser.add_argument("--recorded", action="store_true")
    wanted = parser.parse_args()
    until, path, missing = time.monotonic() + wanted.seconds, wanted.to / "searches.jsonl", False
    wanted.to.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for text in wanted.files:
        name = Path(text.split(",")[0]).stem
        if any(line["problem"] == name and line["budget"] == wanted.budget for line in lines):
            continue
        began = time.monotonic()
        found = recorded(text, wanted.to, wanted) if wanted.recorded else searched(text, wanted.to, wanted, until)
        missing = missing or not found
        with path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in found)
        lines += found
        print(f"{name}: {len(found)} searches in {time.monotonic() - began:.1f} s", flush=True)
    if wanted.out is not None:
        wanted.out.write_text("\n".join([page(lines), *_provenance(wanted.to), wanted.note]).rstrip() + "\n")
    return int(missing)


def shares(lines: Sequence[Mapping[str, Any]], at: Sequence[int]) -> np.ndarray:
    """[searches, len(at)]: the fastest that any search of the problem found over the fastest of each one so far."""
    best = min(cost for line in lines for cost in line["cost"] if cost is not None)
    rows = []
    for line in lines:
        costs = [float("inf") if cost is None else cost for cost in line["cost"]]
        rows.append([best / min(costs[:count]) for count in at])
    return np.array(rows)


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """Curves by problem and arm."""
    text = [HEAD]
    for name in dict.fromkeys(line["problem"] for line in lines):
        own = [line for line in lines if line["problem"] == name]
        at = [count for count in AT if count <= own[0]["budget"]]
        found = shares(own, at)
        arms = {arm: found[[at for at, line in enumerate(own) if line["arm"] == arm]] for arm in ARMS}
        text += [f"## {name}, {own[0]['family']}, {own[0]['device']}", "", "| arm | " + " | ".join(map(str, at)) + " |"]
        text += ["|---" * (1 + len(at)) + "|", *(_row(arm, rows) for arm, rows in arms.items())]
        text += [_row("team less single, same seeds", arms[TEAM] - arms[SINGLE], "+"), ""]
        text += [*_entropy(own, at), ""]
    return "\n".join(text)


def _entropy(lines: Sequence[Mapping[str, Any]], at: Sequence[int]) -> list[str]:
    """Role -> share of the uniform entropy; and what rounds of noise brought."""
    found = ["| entropy, over the uniform one's | " + " | ".join(map(str, at)) + " |", "|---" * (1 + len(at)) + "|"]
    for arm in (TEAM, SINGLE):
        own = [line["entropy"] for line in lines if line["arm"] == arm]
        for role in own[0][0]:
            curve = np.mean([[point[role] for point in one] for one in own], axis=0)
            found.append(f"| {arm}, {role} | " + " | ".join(f"{value:.2f}" for value in curve) + " |")
    found.append("")
    for arm in (TEAM, SINGLE):
        own = [line["escapes"] for line in lines if line["arm"] == arm]
        count, better = sum(one["evaluations"] for one in own), sum(one["improved"] for one in own)
        found.append(f"Escape rounds of the arm `{arm}`: {count} evaluations, {better} of which became the best.")
    return found


def _provenance(to: Path) -> list[str]:
    """Where and when the runs were made, a line for each."""
    told = []
    for path in sorted(to.glob("runs/*/*/manifest.json")):
        run = json.loads(path.read_text())
        versions = ", ".join(f"{name} {value}" for name, value in sorted(run["versions"].items()))
        driver = f", driver for CUDA {run['driver']}" if run["driver"] else ""
        told.append(f"{path.parent.parent.name}: {run['created'][:10]}, {run['device']}{driver}; {versions}.")
    return [*told, ""]


def _row(label: str, rows: np.ndarray, sign: str = "") -> str:
    errors = rows.std(axis=0, ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else np.full(rows.shape[1], np.nan)
    cells = [f"{mean:{sign}.3f} ± {error:.3f}" for mean, error in zip(rows.mean(axis=0), errors, strict=True)]
    return f"| {label} | " + " | ".join(cells) + " |"


HEAD = """# Role agents against one agent, judged live

Slot policies that learn within one search from nothing, one proposal a round, every proposal compiled, checked and
timed; means over seeds ± standard error of the fastest time that any search of the problem found over the fastest of a
search after so many evaluations. Where nothing was measured (no GPU) a time is the cost model's. Made by
`benchmarks/agents_live.py`, which says how.
"""


if __name__ == "__main__":
    sys.exit(main())
