"""What a lane keeps from problem to problem: the machine, the compilers and the imports of worker processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from warpsmith.agents.llm.accounts import Account, Caps
from warpsmith.agents.llm.endpoint import endpoint
from warpsmith.agents.llm.prices import Prices
from warpsmith.agents.registry import crew_of
from warpsmith.app.suite.wire import Setup
from warpsmith.app.workbench import Bench, Machine, find_machine, versions
from warpsmith.kernels.problem import load_problem
from warpsmith.sandbox.cuda.driver import driver
from warpsmith.sandbox.cuda.memory import VARIABLE, limit_bytes
from warpsmith.sandbox.nursery import Nursery
from warpsmith.sandbox.stem import imports_kept
from warpsmith.tools.compile import Compiler
from warpsmith.tools.workers import preload_modules, worker_environment


@dataclass
class Desk:
    """Use as a context manager."""

    machine: Machine
    compiler: Compiler
    jobs: int
    whole_memory: str = ""
    """The variable that bounds a worker's memory as it was before the GPU was shared; empty: all of it."""
    _kept: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @classmethod
    def open(cls, setup: Setup) -> Self:
        """Finds the machine. UserError or EnvironmentError_ where it, or the policy, cannot be used as asked."""
        _refuse_policy(setup)
        machine = find_machine(setup.device, setup.arch)
        whole = os.environ.get(VARIABLE, "")
        if machine.target.kind == "gpu" and setup.memory_shares > 1:
            _hold_to_share(setup.memory_shares)
        return cls(machine, Compiler(machine.target.arch, jobs=setup.jobs), setup.jobs, whole)

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


def _hold_to_share(shares: int) -> None:
    """Worker processes, which inherit the environment, take this part of the GPU's memory, as on a smaller card."""
    os.environ[VARIABLE] = f"{(limit_bytes() or driver().memory(0)) / shares / 1e9:.3f}"
