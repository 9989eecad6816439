"""What keeps a candidate in its place on this machine: every layer, and every attempt made against it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from warpsmith.app.doctor_checks import Check, check
from warpsmith.kernels.errors import WarpsmithError
from warpsmith.kernels.records import Candidate, CompileReport, KernelStep, LaunchPlan
from warpsmith.sandbox.compile_client import CompileWorker
from warpsmith.sandbox.driver_probe import DriverFacts
from warpsmith.sandbox.isolation.policy import VARIABLE
from warpsmith.sandbox.isolation.profile import ALWAYS, REMEDIES, Isolation, is_on
from warpsmith.sandbox.isolation.proof import STOPPED_BY, Proof, Trial, prove
from warpsmith.sandbox.nvrtc import INSTALL_HINT, Nvrtc
from warpsmith.sandbox.worker import Worker
from warpsmith.tools.compile import Compiler
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.target import Target
from warpsmith.tools.workers import preload_modules, worker_environment

PROBE_KERNEL = 'extern "C" __global__ void probe(float* y) { y[threadIdx.x] = 2.0f * threadIdx.x; }\n'
PROBE_PLAN = LaunchPlan(steps=(KernelStep(kernel="probe", grid=(1, 1, 1), block=(32, 1, 1), args=("out0",)),))

_OPTIONAL = "nothing to do: the other layers hold without it (docs/safety.md)"
_BARE = "judge only sources you trust, or make the missing layers available (docs/safety.md)"


def isolation_checks(nvrtc: Nvrtc | None, facts: DriverFacts) -> list[Check]:
    """The profile, its layers, what each attempt came to, and the compiler's layers. None raises."""
    target = Target(kind="gpu" if facts.devices else "cpu", arch="sm_90")
    try:
        proof = asyncio.run(prove(runner_policy(target)))
    except WarpsmithError as error:
        remedy = f"unset ${VARIABLE}, or see the reason" if VARIABLE in str(error) else "see the reason"
        return [check("isolation", "fail", str(error), remedy)]
    found = [_profile(proof), *(_layer(name, proof.isolation) for name in proof.isolation.layers)]
    found += [_trial(trial, proof.isolation) for trial in proof.trials]
    found.append(_compiler(nvrtc))
    if facts.devices:
        found.append(_gpu(nvrtc, facts))
    return found


def _profile(proof: Proof) -> Check:
    stopped = sum(trial.stopped for trial in proof.trials)
    detail = f"profile `{proof.isolation.profile}`; {stopped} of {len(proof.trials)} attempts stopped"
    if proof.isolation.profile == "bare":
        return check("isolation", "warn", detail, _BARE)
    return check("isolation", "ok", detail)


def _layer(name: str, isolation: Isolation) -> Check:
    said = isolation.layers[name]
    if is_on(isolation.layers, name):
        return check(f"layer: {name}", "ok", said)
    if name in ALWAYS:
        return check(f"layer: {name}", "warn", said, REMEDIES.get(name, _BARE))
    return check(f"layer: {name}", "absent", said, REMEDIES.get(name, _OPTIONAL))


def _trial(trial: Trial, isolation: Isolation) -> Check:
    name, said = f"attempt: {trial.name}", trial.detail
    if trial.stopped:
        return check(name, "ok", f"stopped: {said}")
    if trial.expected(isolation):
        return check(name, "fail", f"not stopped: {said}", "report this with the lines above: a layer does not hold")
    layers = " or ".join(STOPPED_BY.get(trial.name, ()))
    return check(name, "warn", f"not stopped: {said}", f"what would stop it: {layers}; {_BARE}")


def _compiler(nvrtc: Nvrtc | None) -> Check:
    """Whether compiler processes are kept from other files, the network and children."""
    if nvrtc is None:
        return check("compiler isolation", "warn", "not tried without NVRTC", INSTALL_HINT)
    try:
        worker = CompileWorker(nvrtc.library)
    except WarpsmithError as error:
        return check("compiler isolation", "fail", str(error), "see the check `nvrtc`")
    layers = worker.layers
    worker.close()
    said = "; ".join(f"{name} {state}" for name, state in layers.items())
    missing = [name for name in ("landlock", "seccomp") if not is_on(layers, name)]
    if missing:
        remedy = "; ".join(REMEDIES[name] for name in missing) + ", or judge only sources you trust"
        return check("compiler isolation", "warn", f"a foreign source may read your files: {said}", remedy)
    return check("compiler isolation", "ok", said)


def _gpu(nvrtc: Nvrtc | None, facts: DriverFacts) -> Check:
    """cuInit and a launch from inside the layers."""
    name = "gpu inside the isolation"
    if nvrtc is None:
        return check(name, "warn", "not tried without NVRTC", INSTALL_HINT)
    device = facts.devices[0]
    try:
        values = asyncio.run(_launch(nvrtc, Target(kind="gpu", arch=f"sm_{device['major']}{device['minor']}")))
    except (WarpsmithError, OSError) as error:
        remedy = f"set ${VARIABLE}=bare to see whether the isolation is the reason, and report it"
        return check(name, "fail", str(error), remedy)
    if values != [2.0 * n for n in range(32)]:
        return check(name, "fail", "the kernel gave wrong numbers", "look at the driver's log (dmesg, nvidia-smi)")
    return check(name, "ok", "cuInit and a launch")


async def _launch(nvrtc: Nvrtc, target: Target) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        policy = runner_policy(target, compiled=Path(folder))
        report = compile_probe(nvrtc, target.arch, Path(folder))
        payload = {
            "report": report.model_dump(mode="json"), "plan": PROBE_PLAN.model_dump(mode="json"), "count": 32,
        }  # fmt: skip
        modules, variables = preload_modules(target), worker_environment(target)
        async with Worker(preload=modules, environment=variables, policy=policy) as worker:
            job = "warpsmith.sandbox.isolation.gpu_trial:launch"
            values: list[float] = await worker.call(job, payload, timeout_s=120.0)
            return values


def compile_probe(nvrtc: Nvrtc, arch: str, folder: Path) -> CompileReport:
    """Compiles a tiny kernel with a compiler process and a fresh cache in `folder`."""
    with Compiler(arch, cache_dir=folder, jobs=1, nvrtc=nvrtc) as compiler:
        return compiler.compile(Candidate(source=PROBE_KERNEL, plan=PROBE_PLAN))
