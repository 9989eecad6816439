"""Reference modules that a model wrote, run where they may be: in a confined process, which hands out data alone."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from warpsmith.kernels.capture import capture
from warpsmith.kernels.errors import (
    EnvironmentError_,
    NotYetError,
    SandboxError,
    SandboxTimeout,
    UserError,
    WorkerDied,
    WorkerExceeded,
    WorkerKilled,
)
from warpsmith.kernels.graph_json import decoded, encoded
from warpsmith.kernels.problem import Instance, Problem, ProblemRef, StoredTensor, load_ref, named_tensors
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.kernels.reference.held import HeldFacts, HeldOperand, HeldProblem
from warpsmith.kernels.reference.rules import check_approved
from warpsmith.kernels.reference.state import PlainState
from warpsmith.kernels.shape_variants import CLASSES, Budget, ShapeClass, Variant, Variants
from warpsmith.sandbox.isolation.policy import Policy
from warpsmith.sandbox.worker import Worker
from warpsmith.tools.operands import operands_of
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.target import Target

logger = logging.getLogger(__name__)

TIMEOUT_S = 120.0
"""For building, tracing and one run without data; on data where nothing can be traced."""
MEMORY_BYTES = 8 << 30
_PRELOAD = (
    "torch", "warpsmith.tools.jail",
    # What the first trace imports.
    "?torch._dynamo", "?torch._inductor.decomposition", "?torch._functorch.aot_autograd", "?networkx",
)  # fmt: skip
DRAWN = 2
"""Shape variants of each class that are drawn at once."""


def held_problem(ref: ProblemRef, *, timeout_s: float = TIMEOUT_S) -> HeldProblem:
    """An approved reference as a problem that this process never runs. UserError where the rules refuse the text, it
    is not what was approved, or it fails; EnvironmentError_ where this machine cannot confine a process."""
    try:
        source = Path(ref.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{ref.path}: the approved reference module cannot be read: {error}") from error
    check_approved(source, ref.approved)
    payload = {"problem": ref.model_dump(mode="json")}
    reply = run_confined("warpsmith.tools.jail:facts_job", payload, ref, timeout_s=timeout_s)
    try:
        facts = HeldFacts.model_validate(reply)
    except ValidationError as error:
        raise UserError(f"{ref.path}: the confined process gave no facts of the module: {error}") from error
    return HeldProblem(ref, source, facts)


def run_confined(function: str, payload: Mapping[str, Any], ref: ProblemRef, *, timeout_s: float = TIMEOUT_S) -> Any:
    """One job in a confined process of its own; may be called where an event loop runs."""
    if not _in_a_loop():
        # In this thread, which may keep imports for its processes.
        return asyncio.run(_call(function, payload, ref, timeout_s))
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(_call(function, payload, ref, timeout_s)))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="jail")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _call(function: str, payload: Mapping[str, Any], ref: ProblemRef, timeout_s: float) -> Any:
    async with Worker(preload=_PRELOAD, policy=_policy(ref)) as worker:
        if worker.isolation is None or worker.isolation.profile == "bare":
            raise EnvironmentError_(
                "a module that a model wrote runs in confined processes alone, and this machine confines none: "
                "`warpsmith doctor` says which layer is missing; or copy the text into a file of your own and name that"
            )
        try:
            return await worker.call(function, dict(payload), timeout_s=timeout_s)
        except SandboxTimeout as error:
            raise UserError(
                f"{ref.path}: the module did not end within {timeout_s:g} s: make its sizes smaller"
            ) from error
        except WorkerDied as error:
            raise UserError(f"{ref.path}: {ended(error)}") from error
        except SandboxError as error:
            raise UserError(f"{ref.path}: {error}") from error


def ended(error: WorkerDied) -> str:
    """What became of a module whose process ended: sizes are to blame where memory ran out, and only there."""
    limit = f"it may use {MEMORY_BYTES / 2**30:g} GiB of memory"
    if isinstance(error, (WorkerKilled, WorkerExceeded)):
        return f"the module's process was killed ({error}): {limit}; if its tensors are near that, make them smaller"
    return f"the module ended its process ({error}): a reference that crashes is no reference; {limit}"


def _policy(ref: ProblemRef) -> Policy:
    policy = runner_policy(Target(kind="cpu", arch="sm_90"), ref)
    return replace(policy, folders=(), memory_bytes=MEMORY_BYTES)


def facts_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job: operands, graph and constants of a problem, as data."""
    problem = load_ref(ProblemRef.model_validate(payload["problem"]))
    graph: Any = None
    not_yet = None
    try:
        graph = encoded(capture(problem))
    except NotYetError as error:
        not_yet = str(error)
        _check_untraced(problem)
    operands = [
        HeldOperand(name=one.name, dtype=one.dtype, shape=one.shape, strides=one.strides)
        for one in operands_of(problem)
    ]
    lifted = {name: StoredTensor.store(tensor) for name, tensor in problem.constants.items()}
    return HeldFacts(operands=tuple(operands), graph=graph, not_yet=not_yet, lifted=lifted).model_dump(mode="json")


def _check_untraced(problem: Problem) -> None:
    """Whether forward leaves nothing to its next call, found by running it on data where a trace found nothing. Raises
    UserError."""
    instance = problem.build(device="cpu", seed=0)
    state = PlainState(problem.path, instance.module)
    versions = _versions(instance)
    try:
        instance.run()
    except Exception as error:
        raise problem.user_error(error, "forward") from error
    state.check_unchanged(instance.module)
    changed = [name for name, version in _versions(instance).items() if versions.get(name) != version]
    if changed:
        raise UserError(f"{problem.path}: forward changes {changed[0]}, which outlives the call; return the new value")


def _versions(instance: Instance) -> dict[str, tuple[int, int]]:
    """Parameters, buffers and attributes by name: which tensor each is, and how often it was changed."""
    return {name: (id(tensor), tensor._version) for name, tensor in named_tensors(instance.module).items()}


class HeldVariants:
    """Shape variants of a held problem, drawn in one confined process at the first call."""

    def __init__(self, problem: HeldProblem, flops: int, budget: Budget, seed: int) -> None:
        self._problem = problem
        self._asked = {"flops": flops, "budget": asdict(budget), "seed": seed}
        self._drawn: dict[str, list[Variant]] | None = None

    @property
    def most(self) -> int:
        """How many variants of one class there are to try."""
        return DRAWN

    def draw(self, shape: ShapeClass, number: int) -> Variant | None:
        """Variant `number` of a class, or None where there is none."""
        if self._drawn is None:
            try:
                self._drawn = self._from_jail()
            except (UserError, EnvironmentError_) as error:
                logger.debug("no shape variants: %s", error)
                self._drawn = {}
        found = self._drawn.get(shape, [])
        return found[number] if number < len(found) else None

    def _from_jail(self) -> dict[str, list[Variant]]:
        ref = self._problem.ref
        payload = {"problem": ref.model_dump(mode="json"), **self._asked}
        found: dict[str, list[Variant]] = {}
        for one in run_confined("warpsmith.tools.jail:variants_job", payload, ref):
            made = ProblemRef.model_validate(one["ref"])
            if made.approved != ref.approved or made.path != ref.path:
                raise UserError(f"{ref.path}: the confined process named another module")
            found.setdefault(one["shape"], []).append(Variant(one["shape"], made, decoded(one["graph"])))
        return found


def variants_job(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Worker job: variants of each class, each with its graph."""
    problem = load_ref(ProblemRef.model_validate(payload["problem"]))
    variants = Variants(problem, payload["flops"], Budget(**payload["budget"]), payload["seed"])
    found: list[dict[str, Any]] = []
    for shape in CLASSES:
        for number in range(min(DRAWN, variants.most)):
            made = variants.draw(shape, number)
            if made is None:
                break
            graph = encoded(capture(load_ref(made.ref)))
            found.append({"shape": shape, "ref": made.ref.model_dump(mode="json"), "graph": graph})
    return found


def export_job(payload: Mapping[str, Any]) -> str:
    """Worker job: the text of a ModelNew."""
    from warpsmith.tools.export import model_new

    problem = load_ref(ProblemRef.model_validate(payload["problem"]))
    candidate = Candidate.model_validate(payload["candidate"])
    outcome = Outcome.model_validate(payload["outcome"])
    return model_new(problem, candidate, arch=str(payload["arch"]), ptx=str(payload["ptx"]), outcome=outcome)
