"""Worker jobs for baselines that are kept: compiled side by side first, then timed alone on the device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch.utils import _pytree as pytree

from warpsmith.kernels.problem import ProblemRef, load_ref
from warpsmith.kernels.records import Failure, Record
from warpsmith.tools.measurement.baseline_records import COMPILE, EAGER, MAX_AUTOTUNE, REDUCE_OVERHEAD
from warpsmith.tools.measurement.contenders import Contender, compiled, module_contenders, stage_for
from warpsmith.tools.measurement.quiet_compile import Gate
from warpsmith.tools.measurement.sampling import Sampler
from warpsmith.tools.measurement.statistics import half_width, speedup
from warpsmith.tools.measurement.timing import SHORT_US
from warpsmith.tools.target import Target
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.session import Session, alone_on, backend_for, session_for

ROUNDS = 15
_ROUNDS_S = 1.5
"""Rounds end after this, however few they are: a module of 100 ms is told well enough by five."""
_LEAST_ROUNDS = 3
_CLOSE_ROUNDS, _CLOSE = 5, 0.01
"""They end after so many where the ratio to eager is known to a per cent, or eager's own samples lie so close."""
MEMORY = "out of memory"


class Timed(Record):
    """Raw microseconds of one mode and, in the same rounds, of eager."""

    mode: str
    method: str = "events"
    samples: tuple[float, ...] = ()
    eager: tuple[float, ...] = ()
    failure: str | None = None
    compile_s: float = 0.0
    notes: tuple[str, ...] = ()


def compile_job(payload: Mapping[str, Any]) -> dict[str, str]:
    """Payload: `problem`, `target`, `modes`. Compiles and runs the module under each mode, so that torch.compile's
    cache on disk knows it; nothing is timed, and what others time is not disturbed. Gives what went wrong, by mode."""
    oracle.pin_flags()
    device = backend_for(Target.model_validate(payload["target"])).torch_device
    turn = partial(alone_on, device, shared=True)
    # No references: many such jobs share a device.
    with turn():
        instance = load_ref(ProblemRef.model_validate(payload["problem"])).build(device=str(device), seed=0)
    arguments = pytree.tree_unflatten(instance.inputs, instance.structure)
    found = {}
    for mode in payload["modes"]:
        if mode == MAX_AUTOTUNE:
            # It measures while it compiles.
            with turn():
                found[mode] = compiled(instance.module, mode, arguments)
        elif mode != EAGER:
            found[mode] = compiled(instance.module, mode, arguments, Gate(turn))
    return {mode: text for mode, text in found.items() if isinstance(text, str)}


def time_job(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Payload: `problem`, `target`, `modes`. Times each mode next to eager while no other process of ours uses the
    device; compilers run before, while others may time something. Gives a Timed for each."""
    session = session_for(payload)
    with session.alone(shared=True):
        inputs = session.bare_set()
    found = []
    for mode in payload["modes"]:
        found.append(_timed(session, inputs, mode).model_dump(mode="json"))
        _let_go(session, mode)
    session.stages.clear()
    return found


def _let_go(session: Session, mode: str) -> None:
    """Gives back the memory of a mode that no candidate is timed beside."""
    if mode != COMPILE:
        session.compiled.pop(mode, None)
    if mode == REDUCE_OVERHEAD:
        from torch._inductor.cudagraph_trees import reset_cudagraph_trees

        # Its graphs keep inputs and outputs of their own for as long as the process lives.
        reset_cudagraph_trees()
        oracle.return_memory()


def _contender(session: Session, inputs: InputSet, mode: str) -> Contender | str:
    """The module under a mode, or why it cannot be had."""
    contenders, notes = module_contenders(session, inputs, [mode])
    return contenders[0] if contenders else "; ".join(notes)


def _timed(session: Session, inputs: InputSet, mode: str) -> Timed:
    """One mode in rounds with eager: two samples of each a round, in order and in reverse."""
    began = time.perf_counter() - session.waited_s
    contender = _contender(session, inputs, mode)
    compile_s = time.perf_counter() - session.waited_s - began if mode != EAGER else 0.0
    if isinstance(contender, str):
        return Timed(mode=mode, failure=contender, compile_s=compile_s)
    eager = _contender(session, inputs, EAGER)
    assert isinstance(eager, Contender)
    pair = [contender] if mode == EAGER else [contender, eager]
    # One turn a mode: others time theirs in between.
    with session.alone():
        stage = stage_for(session, inputs, short=False, beside=[mode])
        sampler = Sampler(session.cuda(), pair, stage, health=session.cuda().health)
        del stage
        failure = _sampled(session, inputs, sampler)
    samples = sampler.samples
    if failure is not None or not samples.get(mode):
        why = failure.message if failure is not None else "; ".join(sampler.notes) or "no sample was taken"
        return Timed(mode=mode, failure=f"{why}{_memory(failure)}", compile_s=compile_s)
    dropped = (f"{len(sampler.dropped)} rounds left out: {', '.join(sorted(set(sampler.dropped)))}",)
    return Timed(
        mode=mode, method=sampler.method, samples=tuple(samples[mode]), eager=tuple(samples.get(EAGER, ())),
        compile_s=compile_s, notes=(*sampler.notes, *(dropped if sampler.dropped else ())),
    )  # fmt: skip


def _memory(failure: Failure | None) -> str:
    return f" ({MEMORY})" if failure is not None and failure.kind == "out_of_memory" else ""


def _sampled(session: Session, inputs: InputSet, sampler: Sampler) -> Failure | None:
    """Warm-up, the choice of method as for candidates, and the rounds."""
    failure = sampler.warm_up(0.05, 0.3)
    if failure is not None:
        return failure
    shortest = sampler.probe()
    if isinstance(shortest, Failure):
        return shortest
    if shortest < SHORT_US:
        stage = stage_for(session, inputs, short=True, beside=list(sampler.samples))
        if len(stage.places) > 1:
            sampler.use_graphs(stage)
    deadline = time.perf_counter() + _ROUNDS_S
    for turn in range(ROUNDS):
        failure = sampler.round()
        late = turn + 1 >= _LEAST_ROUNDS and time.perf_counter() > deadline
        if failure is not None or late or (turn + 1 >= _CLOSE_ROUNDS and _settled(sampler)):
            break
    return failure


def _settled(sampler: Sampler) -> bool:
    """Whether more rounds would tell nothing new."""
    first, *others = sampler.samples.values()
    if not first:
        return False
    if not others:
        return max(first) - min(first) < _CLOSE * min(first)
    return all(half_width(speedup(values, first)) < _CLOSE for values in others)


def out_of_memory(found: Sequence[Timed]) -> bool:
    """Whether a mode failed for want of memory: another try with the whole device may succeed."""
    return any(one.failure is not None and MEMORY in one.failure.lower() for one in found)
