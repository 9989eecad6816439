"""Times of the module as it is: eager, and under the modes of torch.compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from warpsmith.kernels.errors import EnvironmentError_
from warpsmith.kernels.problem import ProblemRef
from warpsmith.kernels.records import Failure, Quantiles, Record
from warpsmith.sandbox.worker import Worker
from warpsmith.tools.measurement.statistics import quantiles
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.target import Target
from warpsmith.tools.workers import preload_modules, worker_environment

MODES = ("eager", "compile", "max-autotune", "reduce-overhead")
_TIMEOUT_S = 900.0
_ROUNDS = 15


class Baselines(Record):
    """Microseconds by mode, and the modes that could not be had with the reason."""

    device: str
    times_us: dict[str, Quantiles]
    notes: tuple[str, ...] = ()
    method: str = "events"


async def measure_baselines(
    ref: ProblemRef, target: Target, *, modes: Sequence[str] = MODES, timeout_s: float = _TIMEOUT_S
) -> Baselines:
    """Times each mode on a GPU, in a process of its own. EnvironmentError_ where there is none."""
    if target.kind != "gpu" or not torch.cuda.is_available():
        raise EnvironmentError_("baselines are times of a GPU, and this machine offers none: see warpsmith doctor")
    payload = {
        "problem": ref.model_dump(mode="json"),
        "target": target.model_copy(update={"index": 0}).model_dump(mode="json"),
        "modes": list(modes),
    }
    worker = Worker(
        preload=preload_modules(target), environment=worker_environment(target), policy=runner_policy(target, ref)
    )
    async with worker:
        reply = await worker.call("warpsmith.tools.measurement.baseline:run_job", payload, timeout_s=timeout_s)
    return Baselines.model_validate(reply)


def run_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job. Payload: `problem`, `target`, `modes`. Gives Baselines."""
    from warpsmith.tools.measurement.contenders import module_contenders, stage_for
    from warpsmith.tools.measurement.sampling import Sampler
    from warpsmith.tools.verification.session import session_for

    session = session_for(payload)
    backend = session.cuda()
    inputs = session.input_set("shipped") or session.input_set("normal")
    if inputs is None:
        raise EnvironmentError_(f"the module gives no usable result on this device: {session.dropped}")
    contenders, notes = module_contenders(session, inputs, payload["modes"])
    found: dict[str, Quantiles] = {}
    with session.alone():
        for contender in contenders:
            stage = stage_for(session, inputs, short=False)
            sampler = Sampler(backend, [contender], stage, health=backend.health)
            failure: Failure | None = sampler.warm_up(0.1, 0.5)
            for _ in range(_ROUNDS):
                failure = failure or sampler.round()
            if failure is None:
                found[contender.name] = quantiles(sampler.samples[contender.name])
            else:
                notes.append(f"baseline `{contender.name}` left out: {failure.message}")
    return Baselines(device=backend.label, times_us=found, notes=tuple(notes)).model_dump(mode="json")
