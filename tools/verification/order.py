"""May the order of threads show in the results of a right candidate?"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property

from warpsmith.kernels.records import CompileReport, Counters, KernelStep, LaunchPlan, LibraryStep
from warpsmith.tools.rules.ptx_order import order_may_show
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.checksums import digest, memory_of
from warpsmith.tools.verification.input_sets import InputSet

TRIES = 8
"""Runs that must agree before a result is said not to depend on the order of threads."""


@dataclass(frozen=True)
class Order:
    """What a compiled candidate's own code and the libraries that it calls allow."""

    report: CompileReport
    plan: LaunchPlan

    @cached_property
    def in_code(self) -> bool:
        """Whether its kernels hold atomics through which the order of threads shows."""
        kernels = {step.kernel for step in self.plan.steps if isinstance(step, KernelStep)}
        return any(order_may_show(text, kernels) for text in self.report.ptx_texts())

    @property
    def in_calls(self) -> bool:
        """Whether it calls a library at all."""
        return any(isinstance(step, LibraryStep) for step in self.plan.steps)

    def excused(self, inputs: InputSet, counters: Counters | None) -> bool:
        """Whether a result that differs from run to run is nobody's mistake: own sums of atomics that ran, or a library
        whose results differ for eager just so."""
        return (_ran_atomics(counters) and self.in_code) or (self.in_calls and _eager_varies(inputs))


def _ran_atomics(counters: Counters | None) -> bool:
    """Whether atomics took part in a run, as far as can be told: a GPU does not count them."""
    return counters is None or any(kernel.get("atomics") for kernel in counters.kernels.values())


def _eager_varies(inputs: InputSet) -> bool:
    """Whether eager gives other bits on the same inputs from run to run, as cuDNN's transposed convolutions may."""
    key, seen = secrets.randbits(62), set()
    for _ in range(TRIES):
        try:
            seen.add(tuple(digest(memory_of(value), key) for value in oracle.eager(inputs.instance, inputs.inputs)))
        except oracle.Undefined:
            return False
        if len(seen) > 1:
            return True
    return False
