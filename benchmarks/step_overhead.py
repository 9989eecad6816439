"""What a round of the search costs beside models and evaluations: graph, checkpoints and bookkeeping.

usage: python benchmarks/step_overhead.py [--rounds 100] [--batch 1] [--policy chat|builtin] [--problem FILE] [--out MD]

A scripted model answers once; then the search runs anew over the kept replies, with an evaluator that takes no time,
so that neither a model nor a kernel is waited for. Told are milliseconds a round: in all, in the policy (prompts,
look-up and validation of replies), in the evaluator, and the rest, which is the graph with its checkpoints and files;
then the same in CPU time, which other work on the machine does not disturb (and which waiting for the disk is no part
of); then the size of the checkpoints.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.agents.llm.accounts import Caps
from warpsmith.agents.llm.scripted.players import RandomLegal
from warpsmith.agents.llm.scripted.server import ScriptedServer
from warpsmith.agents.policy import Policy, Proposal, Request
from warpsmith.agents.space import SearchSpace
from warpsmith.app.display import QuietDisplay
from warpsmith.app.models import open_policy
from warpsmith.app.workbench import Bench, open_bench, specs_of, write_manifest
from warpsmith.graph.run import run_search
from warpsmith.graph.state import Means, SearchSettings
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.kernels.slots import Values
from warpsmith.tools.null import NullEvaluator
from warpsmith.tools.runs.store import Level, RunStore


@dataclass
class Clock:
    """Seconds by the wall and by the CPU."""

    wall: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Adds what passes meanwhile."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall += time.perf_counter() - wall
            self.cpu += time.process_time() - cpu


@dataclass
class Timed:
    """A policy whose time is counted. It has no say in plans and writes nothing: the rounds are all of one kind."""

    inner: Policy
    clock: Clock = field(default_factory=Clock)
    rounds: int = 0

    @property
    def name(self) -> str:
        """The policy's."""
        return self.inner.name

    def opening(self, space: SearchSpace) -> Values:
        """The policy's."""
        with self.clock.running():
            return self.inner.opening(space)

    def propose(self, request: Request) -> list[Proposal]:
        """The policy's."""
        self.rounds += 1
        with self.clock.running():
            return self.inner.propose(request)


@dataclass
class TimedEvaluator:
    """An evaluator that takes no time, and what it takes nevertheless."""

    inner: NullEvaluator
    clock: Clock = field(default_factory=Clock)

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        """Costs from a formula."""
        with self.clock.running():
            return await self.inner.evaluate(candidates, level=level)


@dataclass(frozen=True)
class Taken:
    """Figures of one search."""

    total: Clock
    policy: Clock
    evaluator: Clock
    rounds: int
    checkpoint_bytes: int


def search(
    bench: Bench, specs: dict[str, KernelSpec], store: RunStore, name: str, arguments: argparse.Namespace
) -> Taken:
    """One search in a run folder; replies that it holds are used again."""
    settings = SearchSettings(name, budget=arguments.rounds * arguments.batch, batch=arguments.batch, full_verdicts=1)
    with store, open_policy(name, bench, specs, store, Caps(), QuietDisplay()) as policy:
        timed, evaluator = Timed(policy), TimedEvaluator(NullEvaluator(store=store))
        total = Clock()
        with total.running():
            asyncio.run(run_search(list(specs.values())[:1], evaluator, store, settings, means=Means(policy=timed)))
        size = sum(path.stat().st_size for path in store.folder.glob("checkpoints.db*"))
    return Taken(total, timed.clock, evaluator.clock, timed.rounds, size)


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--policy", choices=("chat", "builtin"), default="chat")
    parser.add_argument("--problem", default=str(Path(__file__).resolve().parents[1] / "examples" / "matmul.py"))
    parser.add_argument("--out", type=Path, metavar="MD", help="a file that takes the figures as well")
    return parser.parse_args(words)


def opened(name: str, folder: Path, bench: Bench) -> RunStore:
    """A new run with its manifest."""
    store = RunStore.create(name, folder)
    write_manifest(store, bench, {"problem": bench.problem.ref.model_dump(mode="json")}, 0)
    return store


def told(policy: str, taken: Taken, asked: int, anew: int) -> Iterator[str]:
    """The figures, a line each."""
    yield f"{policy}: {taken.rounds} rounds, {asked} replies kept, {anew} asked anew"
    for kind in ("wall", "cpu"):
        parts = [1e3 * getattr(clock, kind) / taken.rounds for clock in (taken.total, taken.policy, taken.evaluator)]
        rest = parts[0] - parts[1] - parts[2]
        told = "{:.1f} in all, {:.1f} policy, {:.1f} evaluator, {:.1f} graph and bookkeeping".format(*parts, rest)
        yield f"{kind} ms a round: {told}"
    size = taken.checkpoint_bytes / 1e6
    yield f"checkpoints: {size:.2f} MB, {100 * size / taken.rounds:.2f} MB a hundred rounds"


def page(lines: Sequence[str], arguments: argparse.Namespace) -> str:
    """A page for docs/results."""
    machine = f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}"
    given = f"--policy {arguments.policy} --rounds {arguments.rounds} --batch {arguments.batch}"
    head = f"# What a round costs beside models and evaluations\n\n{machine}; `benchmarks/step_overhead.py {given}`\n\n"
    return head + "".join(f"- {line}\n" for line in lines)


def main() -> None:
    """Runs the search twice and prints the figures of the second time."""
    arguments = parsed(sys.argv[1:])
    bench = open_bench(arguments.problem, device="cpu", arch=None, overrides={}, inputs=None, mode="eval")
    specs = specs_of(bench)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(ScriptedServer(player=RandomLegal(1)))
        name = f"chat:scripted@{server.base_url}" if arguments.policy == "chat" else "builtin"
        first = opened("first", folder, bench)
        search(bench, specs, first, name, arguments)
        asked = len(server.requests)
        second = opened("second", folder, bench)
        if (first.folder / "replies.jsonl").exists():
            shutil.copy(first.folder / "replies.jsonl", second.folder)
            shutil.copytree(first.folder / "blobs", second.folder / "blobs", dirs_exist_ok=True)
        taken = search(bench, specs, second, name, arguments)
        anew = len(server.requests) - asked
    lines = list(told(arguments.policy, taken, asked, anew))
    print("\n".join(lines))
    if arguments.out is not None:
        arguments.out.write_text(page(lines, arguments))


if __name__ == "__main__":
    main()
