"""Whether a problem's own checks tell a right answer from trivial ones: asked once, before any agent is paid."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import StrictInt, ValidationError

from warpsmith.kernels.problem import Instance
from warpsmith.kernels.records import Record
from warpsmith.tools.compile_cache import default_cache_dir
from warpsmith.tools.runs.store import write_atomically
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.checksums import digest, memory_of
from warpsmith.tools.verification.compare import RULE_VERSION, Yardstick
from warpsmith.tools.verification.domains import computable
from warpsmith.tools.verification.input_sets import InputSet
from warpsmith.tools.verification.inputs import KINDS
from warpsmith.tools.verification.memory import budget_of
from warpsmith.tools.verification.sealed import piece_of
from warpsmith.tools.verification.session import Session, session_for
from warpsmith.tools.verification.verify import compare_output

_PIECE = 1 << 22
"""Elements worked on at a time: a dozen temporaries in float64."""
Answer = Callable[[InputSet], Sequence[torch.Tensor]]
"""What a kernel would give that does not do the work; raises Undefined where it cannot be had."""
_LOWER = {torch.float64: 23, torch.float32: 10, torch.float16: 7, torch.bfloat16: 3}
"""Bits after the leading one of the next lower precision: float32, TF32 and float16, bfloat16, float8."""
_INSIDE = {torch.float32: 10, torch.float16: 10, torch.bfloat16: 7}
"""The same of what eager computes in, where that is below its results; float32 stands for TF32."""
_CUT_SHORT = "the answer without the last of "
_LOWER_NAMES = {23: "float32", 10: "float16 or TF32", 7: "bfloat16", 3: "float8"}


class Audit(Record):
    """What was found. `accepted` names the answers that every kind of input takes for right."""

    problem_hash: str
    rule: StrictInt = RULE_VERSION
    device: str
    """`cpu` or `cuda`: eager's own error, the yardstick, differs."""
    accepted: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of input that were needed to tell."""
    untold: tuple[str, ...] = ()
    """Answers that could not be had for want of memory: whether they pass is not known."""
    seconds: float = 0.0

    @property
    def payable(self) -> bool:
        """Whether a verdict on this problem may be paid for. What leaves out the last elements saves no time."""
        trivial = [answer for answer in self.accepted if not answer.startswith(_CUT_SHORT)]
        return not trivial and not self.untold and bool(self.tried)

    def warnings(self) -> list[str]:
        """The findings as sentences for users."""
        told = [f"this problem cannot tell {answer} from a right answer" for answer in self.accepted]
        return told + [f"for want of memory it was not tried whether {answer} passes" for answer in self.untold]


def run_job(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Worker job. Payload: `problem`, `target`, `problem_hash`. Gives an Audit."""
    session = session_for(payload)
    return audit(session, payload["problem_hash"]).model_dump(mode="json")


def audit(session: Session, problem_hash: str) -> Audit:
    """Holds each trivial answer against the judge's rule, kind by kind, until one kind refuses it."""
    began = time.perf_counter()
    trial = _Trial()
    for kind in KINDS:
        if not kind.judged or trial.done:
            continue
        with session.alone(shared=True):
            # Within a call of its own: a set that the session does not keep has to go before the next is made.
            trial.hold(session, kind.name)
    return Audit(
        problem_hash=problem_hash, device=session.backend.torch_device.type,
        accepted=tuple(name for name in trial.standing if name in trial.told),
        tried=tuple(trial.answers or ()), kinds=tuple(trial.used), untold=tuple(trial.untold),
        seconds=time.perf_counter() - began,
    )  # fmt: skip


@dataclass(slots=True)
class _Trial:
    """What is known of the answers so far."""

    answers: dict[str, Answer] | None = None
    """None before the first inputs."""
    standing: dict[str, Answer] = field(default_factory=dict)
    """Refused on no inputs yet."""
    told: set[str] = field(default_factory=set)
    """Taken for right on some."""
    untold: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether every answer was refused."""
        return self.answers is not None and not self.standing

    def hold(self, session: Session, name: str) -> None:
        """Holds the answers that stand against one kind of inputs."""
        inputs = session.input_set(name)
        if inputs is None:
            return
        if self.answers is None:
            self.answers = dict(_answers(session, inputs))
            self.standing = dict(self.answers)
        self.used.append(name)
        for label, answer in list(self.standing.items()):
            try:
                found = _accepted(inputs, answer)
            except _TooLarge:
                # It is as large on every kind of inputs.
                self.untold.append(label)
                found = False
            self.told.update([label] if found else [])
            if found is False:
                del self.standing[label]


def stored(problem_hash: str, device: str) -> Audit | None:
    """The audit of a problem on a kind of device (`cpu`, `cuda`), if this version of the rule has made one."""
    try:
        return Audit.model_validate_json(_path(problem_hash, device).read_bytes())
    except (OSError, ValidationError):
        return None


def keep(found: Audit) -> None:
    """Stores an audit in the cache folder; one for which memory was short is made anew where there may be more."""
    if found.untold:
        return
    path = _path(found.problem_hash, found.device)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, found.model_dump_json(indent=1).encode())


def payable(problem_hash: str, device: str) -> bool:
    """Whether verdicts on a problem may be paid for: it was audited and tells all trivial answers apart."""
    found = stored(problem_hash, device)
    return found is not None and found.payable


def _path(problem_hash: str, device: str) -> Path:
    return default_cache_dir() / "audits" / f"{problem_hash}-{device}-{RULE_VERSION}.json"


class _TooLarge(Exception):
    """The answer does not fit the memory."""


class _SaysNothing(Exception):
    """The answer is the right one on these inputs."""


def _accepted(inputs: InputSet, answer: Answer) -> bool | None:
    """Whether the judge takes an answer for right on one set; None where the set cannot say. _TooLarge where memory
    does not suffice."""
    try:
        values = answer(inputs)
        if [tuple(value.shape) for value in values] != [layout.shape for layout in inputs.layouts]:
            return False
        return all(compare_output(inputs, index, value).problem is None for index, value in enumerate(values))
    except _SaysNothing:
        return None
    except oracle.Undefined:
        return False
    except Exception as error:
        if not oracle.is_out_of_memory(error):
            raise
    oracle.return_memory()
    raise _TooLarge


def _answers(session: Session, inputs: InputSet) -> Iterator[tuple[str, Answer]]:
    """Trivial answers that make sense for a problem with such inputs and outputs."""
    yield "zeros", lambda one: [_filled(one, index, 0.0) for index in range(len(one.layouts))]
    yield "a constant", lambda one: _means(session, one)
    floats = [n for n, value in enumerate(inputs.inputs) if _is_float(value) and value.numel()]
    for position in floats:
        yield f"a copy of in{position}", partial(_copies, position=position)
    yield "the answer for other inputs", lambda one: oracle.eager(one.instance, session.another(one))
    if any(tensor.is_floating_point() for tensor in inputs.instance.module.parameters()):
        yield "the answer without weights", lambda one: oracle.eager(_without_weights(one), one.inputs)
    for position in floats:
        if inputs.inputs[position].dim() and inputs.inputs[position].shape[-1] > 1:
            yield f"{_CUT_SHORT}in{position}", partial(_cut_short, position=position)
    results = [layout.dtype for layout in inputs.layouts if layout.dtype in _LOWER]
    if results:
        bits = _fewer_bits(results, [one.inside for one in inputs.yardsticks if isinstance(one, Yardstick)])
        yield f"the answer in {_LOWER_NAMES[bits]}", lambda one: _coarse(one, bits)


def _fewer_bits(results: Sequence[torch.dtype], inside: Sequence[torch.dtype | None]) -> int:
    """Of the precision below the lowest that eager itself has somewhere: what eager rounds to is no lower one."""
    bits = min(_LOWER[dtype] for dtype in results)
    used = [_INSIDE[dtype] for dtype in inside if dtype is not None]
    return min([bits, *(max((one for one in _LOWER_NAMES if one < own), default=own) for own in used)])


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _means(session: Session, inputs: InputSet) -> list[torch.Tensor]:
    """Each output filled with the mean that it has for other inputs."""
    others = oracle.eager(inputs.instance, session.another(inputs))
    found = []
    for index, value in enumerate(others):
        found.append(_filled(inputs, index, _mean(value)))
    return found


def _mean(value: torch.Tensor) -> float:
    """Of the finite elements; 0 where there are none."""
    total = count = 0.0
    for piece in _pieces(value):
        wide = computable(piece).double()
        finite = wide.isfinite()
        total += float(torch.where(finite, wide, 0).sum())
        count += float(finite.sum())
    return total / max(1.0, count)


def _pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements of a tensor, flat, some at a time."""
    most = budget_of(value.device).piece(_PIECE, 12 * 8)
    return (piece_of(value, start, start + most) for start in range(0, value.numel(), most))


def _filled(inputs: InputSet, index: int, value: float) -> torch.Tensor:
    layout = inputs.layouts[index]
    plain = torch.full((), value, dtype=torch.float64, device=inputs.device)
    return (plain if layout.dtype.is_floating_point else plain.round_()).to(layout.dtype).expand(layout.shape)


def _copies(inputs: InputSet, position: int) -> list[torch.Tensor]:
    """An input, repeated or cut to the shape of each output."""
    flat = inputs.inputs[position].reshape(-1)
    found = []
    for layout in inputs.layouts:
        count = 1
        for size in layout.shape:
            count *= size
        repeated = flat if count <= flat.numel() else flat.repeat(-(-count // flat.numel()))
        found.append(repeated[:count].view(layout.shape).to(layout.dtype))
    return found


def _cut_short(inputs: InputSet, position: int) -> Sequence[torch.Tensor]:
    """The module on inputs of which the last elements along the last dimension are left out."""
    key = secrets.randbits(62)
    right = _digests(oracle.eager(inputs.instance, inputs.inputs), key)
    values = list(inputs.inputs)
    values[position] = values[position].clone()
    values[position][..., -1] = 0
    found = oracle.eager(inputs.instance, values)
    del values
    if _digests(found, key) == right:
        # Nothing depends on them: a window's steps end before the edge.
        raise _SaysNothing
    return found


def _digests(values: Sequence[torch.Tensor], key: int) -> list[int]:
    """What stands for results where memory does not hold two of them."""
    return [digest(memory_of(value), key) for value in values]


def _coarse(inputs: InputSet, bits: int) -> Sequence[torch.Tensor]:
    """The module on inputs and weights of fewer bits, its results of fewer bits."""

    def cut(value: torch.Tensor) -> torch.Tensor:
        made = torch.empty(value.shape, dtype=value.dtype, device=value.device)
        for piece, place in zip(_pieces(value), _pieces(made), strict=True):
            fraction, exponent = torch.frexp(computable(piece).double())
            scale = 2.0 ** (bits + 1)
            place.copy_((fraction * scale).round_() / scale * torch.exp2(exponent.double()))
        return made

    values = [cut(value) if _is_float(value) else value for value in inputs.inputs]
    outputs = list(oracle.eager(_changed(inputs, cut), values))
    del values
    for index, value in enumerate(outputs):
        outputs[index] = cut(value) if value.is_floating_point() else value
        del value
    found = tuple(outputs)
    right = oracle.eager(inputs.instance, inputs.inputs)
    if all(torch.equal(one, other) for one, other in zip(found, right, strict=True)):
        # Whole numbers keep their values in few bits.
        raise _SaysNothing
    return found


def _without_weights(inputs: InputSet) -> Instance:
    module = copy.deepcopy(inputs.instance.module)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.zero_()
    return Instance(module, [], {}, inputs.instance.structure, inputs.instance.draw_inputs)


def _changed(inputs: InputSet, change: Callable[[torch.Tensor], torch.Tensor]) -> Instance:
    """The instance with its floating parameters and buffers changed."""
    module = copy.deepcopy(inputs.instance.module)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(change(tensor))
    found = inputs.instance
    return Instance(module, [], {}, found.structure, found.draw_inputs)
