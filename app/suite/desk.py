"""What a lane keeps from problem to problem: the machine, the compilers and the imports of worker processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.prices import Prices
from warpsmith.agents.registry import crew_of
from warpsmith.app.suite.shares import Shares
from warpsmith.app.suite.wire import Setup
from warpsmith.app.workbench import Bench, Machine, find_machine, versions
from warpsmith.kernels.problem import load_problem
from warpsmith.sandbox.cuda.driver import driver
from warpsmith.sandbox.cuda.memory import VARIABLE, limit_bytes
from warpsmith.sandbox.nursery import Nursery
from warpsmith.sandbox.stem import imports_kept
from warpsmith.tools.compile import Compiler
from warpsmith.tools.verification.footprint import eager_footprint
from warpsmith.tools.workers import preload_modules, worker_environment


@dataclass
class Desk:
    """Use as a context manager."""

    machine: Machine
    compiler: Compiler
    jobs: int
    shares: Shares = field(default_factory=Shares)
    _kept: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @classmethod
    def open(cls, setup: Setup) -> Self:
        """Finds the machine. UserError or EnvironmentError_ where it, or the policy, cannot be used as asked."""
        _refuse_policy(setup)
        machine = find_machine(setup.device, setup.arch)
        shares = Shares()
        if machine.target.kind == "gpu":
            shares = _shares(setup)
        return cls(machine, Compiler(machine.target.arch, jobs=setup.jobs), setup.jobs, shares)

    def __enter__(self) -> Self:
        self._kept.enter_context(self.compiler)
        self._kept.enter_context(imports_kept())
        # While the first problem is read and traced, the workers' imports go on.
        target = self.machine.target
        Nursery(preload=preload_modules(target), environment=worker_environment(target)).warm()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def facts(self) -> dict[str, Any]:
        """Where this lane runs, and under which versions."""
        return {
            "device": self.machine.label, "driver": self.machine.driver, "versions": versions(self.compiler)
        }  # fmt: skip

    @contextlib.contextmanager
    def memory(self, bench: Bench, *, last: bool = False) -> Iterator[bool]:
        """While entered, workers that start take the part of a GPU's memory that judging this problem needs, or with
        `last` all of it. False where a part does not do."""
        if last or bench.machine.target.kind != "gpu":
            with self.shares.all():
                yield True
            return
        needed = self.shares.needed(eager_footprint(bench.problem))
        with self.shares.taken(min(needed, self.shares.seats)):
            yield needed <= self.shares.seats

    def bench(self, path: str, overrides: Mapping[str, str], mode: str) -> Bench:
        """A problem on the lane's machine. UserError where the file is wrong."""
        problem = load_problem(path, overrides=overrides, mode="train" if mode == "train" else "eval")
        return Bench(problem, self.machine, self.compiler, self.jobs)


def _refuse_policy(setup: Setup) -> None:
    """What is wrong with the policy is told once, and not as the end of every problem."""
    crew = crew_of(setup.policy)
    if crew is None:
        return
    Prices.parse(setup.price).require_use({address.model for address in crew.everybody})
    if setup.capped:
        served = [endpoint(one.model, one.base_url) for one in crew.everybody if not one.local]
        Account(Caps(max_cost=0.0, prices=setup.price)).require_prices(served)


def _shares(setup: Setup) -> Shares:
    total = (limit_bytes() or driver().memory(0)) / 1e9
    return Shares.of(total, seats=setup.seats, lanes=setup.lanes, whole=os.environ.get(VARIABLE, ""))
