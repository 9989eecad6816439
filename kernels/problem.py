"""Problem: what the user wants computed; loads in any process, makes weights and inputs on any device."""

from __future__ import annotations

import ast
import base64
import contextlib
import copy
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, StrictInt
from torch.utils import _pytree as pytree

from warpsmith.kernels import jail
from warpsmith.kernels.errors import OutOfMemory, SandboxError, UserError
from warpsmith.kernels.inputspec import draw, parse_inputs
from warpsmith.kernels.live import LiveFacts, load_live, read_facts, save_live, shuffled
from warpsmith.kernels.one_thread import one_thread
from warpsmith.kernels.overrides import describe_settable, locate, run_module, settable
from warpsmith.kernels.placement import made_on, placed
from warpsmith.kernels.records import Record, content_hash
from warpsmith.kernels.reference.checked import check_calls, filled_memory
from warpsmith.kernels.reference.rules import check_approved
from warpsmith.kernels.resize import resized
from warpsmith.kernels.user_code import kept_alive

Mode = Literal["eval", "train"]
_SEED_RANGE = 2**62


class StoredTensor(Record):
    """A small constant of forward, carried inside a ProblemRef."""

    dtype: str
    shape: tuple[StrictInt, ...]
    data: str
    """Base64 of the contiguous bytes."""

    @classmethod
    def store(cls, tensor: torch.Tensor) -> StoredTensor:
        """Keep a CPU tensor."""
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        return cls(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            data=base64.b64encode(flat.tobytes()).decode(),
        )

    def load(self) -> torch.Tensor:
        """The tensor on the CPU."""
        raw = bytearray(base64.b64decode(self.data))
        dtype = getattr(torch, self.dtype)
        if not raw:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(raw, dtype=dtype).reshape(self.shape).clone()


class ProblemRef(Record):
    """All it takes to load a problem again, in this process or another."""

    kind: Literal["file", "live", "reference"] = "file"
    """`reference`: a file that a model wrote and a person approved; it runs in confined processes alone."""
    path: str
    """The source file, or the folder of a saved live module."""
    callable: str = "Model"
    overrides: dict[str, str] = Field(default_factory=dict)
    """Module-level constant -> Python literal."""
    inputs: str | None = None
    sizes: tuple[tuple[StrictInt, ...] | None, ...] | None = None
    """Shapes, by flat position, that drawn tensor inputs are cut or repeated to; None: as drawn."""
    mode: Mode = "eval"
    approved: str | None = None
    """SHA-256 of the text that a person approved, of a `reference`."""
    lifted: dict[str, StoredTensor] | None = None
    """Tensors that forward itself creates (`param:lifted_tensor_N`); None: not traced yet."""


@dataclass(slots=True)
class Instance:
    """A problem with weights and inputs on one device."""

    module: torch.nn.Module
    inputs: list[Any]
    """Flat inputs of forward: tensors and Python numbers, in order (`in0`, `in1`, ...)."""
    parameters: dict[str, torch.Tensor]
    """By the NAME of `param:NAME`: parameters, buffers, tensor attributes, constants of forward."""
    structure: pytree.TreeSpec
    """How the flat inputs nest into the arguments of forward."""
    draw_inputs: Callable[[int], tuple[list[Any], pytree.TreeSpec]]

    def fresh_inputs(self, seed: int) -> list[Any]:
        """Flat inputs drawn anew on the same device; the weights stay."""
        return self.draw_inputs(seed)[0]

    def run(self, inputs: Sequence[Any] | None = None) -> list[torch.Tensor]:
        """Flat tensor outputs of forward, without gradients, on these flat inputs or on `self.inputs`."""
        arguments = pytree.tree_unflatten(list(self.inputs if inputs is None else inputs), self.structure)
        with torch.no_grad(), kept_alive():
            leaves = pytree.tree_leaves(self.module(*arguments))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


class FunctionModule(torch.nn.Module):
    """A plain function as a module without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)


class Problem:
    """A loaded problem. Make one with `load_problem`, `live_problem` or `load_ref`."""

    def __init__(self, ref: ProblemRef, *, source: str, facts: LiveFacts | None = None) -> None:
        self._ref = ref
        self._facts = facts
        self.source = source
        self.mode: Mode = ref.mode
        origin = facts.source_path if facts else ref.path
        self.path = Path(origin) if origin else Path(ref.path)
        self.name = facts.name if facts else self.path.stem
        self._module: ModuleType | None = None
        self._lifted = None if ref.lifted is None else {k: v.load() for k, v in ref.lifted.items()}

    @property
    def ref(self) -> ProblemRef:
        """The serialisable form, with the constants of forward once they are known."""
        if self._lifted is None:
            return self._ref
        lifted = {name: StoredTensor.store(tensor) for name, tensor in self._lifted.items()}
        return self._ref.model_copy(update={"lifted": lifted})

    @cached_property
    def hash(self) -> str:
        """SHA-256 over source code, callable, overrides, inputs and mode; the path does not count."""
        overrides = {name: repr(ast.literal_eval(text)) for name, text in self._ref.overrides.items()}
        identity = self._facts.fingerprint if self._facts else self.source
        named: list[Any] = [identity, self._ref.callable, overrides, self._ref.inputs, self.mode]
        return content_hash(named if self._ref.sizes is None else [*named, self._ref.sizes])

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """Tensors that forward creates itself and that no literal can say, by `param:` name, on the CPU.

        Known after `capture`; else a trace is made, and a problem that cannot be traced has none.
        """
        if self._lifted is None:
            from warpsmith.kernels.capture import lifted_constants

            try:
                self._lifted = lifted_constants(self)
            except UserError:
                self._lifted = {}
        return self._lifted

    def remember_constants(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Keep what a trace found, so that instances and other processes need no trace of their own."""
        self._lifted = dict(constants)

    def settable(self) -> dict[str, Any]:
        """Module-level constants that overrides can change, with their present values."""
        return settable(self._module.__dict__) if self._module else {}

    def settable_text(self) -> str:
        """The same as a sentence for messages."""
        return describe_settable(self._module.__dict__ if self._module else {})

    def load(self) -> None:
        """Run the source as a registered module; raises UserError as `overrides.run_module` does."""
        if self._module is not None or self._ref.kind == "live":
            return
        if self._ref.kind == "reference":
            check_approved(self.source, self._ref.approved)
            if not jail.inside():
                raise SandboxError(f"{self.path} was written by a model: it runs in confined processes alone")
            check_calls()
        identity = content_hash([self.source, str(self.path), self._ref.overrides])
        name = f"warpsmith_problem_{identity[:16]}"
        with one_thread:
            self._module = sys.modules.get(name)
            if self._module is None:
                self._module = run_module(self.source, self.path, name=name, overrides=self._ref.overrides)
        self._check_names(self._module)

    def _check_names(self, module: ModuleType) -> None:
        if not hasattr(module, self._ref.callable):
            found = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
            raise UserError(
                f"{self.path}: defines no {self._ref.callable!r}; "
                f"it has {', '.join(found) or 'no callables'}. Name one as {self.path.name}:NAME, "
                "or define class Model and get_inputs()"
            )
        target = getattr(module, self._ref.callable)
        if not callable(target) or (inspect.isclass(target) and not issubclass(target, torch.nn.Module)):
            raise UserError(
                f"{self.path}: {self._ref.callable!r} is a {type(target).__name__}; "
                "a function, an nn.Module class or an nn.Module instance is needed"
            )
        if self._ref.inputs is None and not callable(getattr(module, "get_inputs", None)):
            raise UserError(
                f"{self.path}: lacks get_inputs(); define it, or describe the inputs with "
                f'{self.path.name}:{self._ref.callable} --inputs "f32[4096,1024]"'
            )

    def instantiate(self, *, device: str = "cpu", seed: int = 0) -> Instance:
        """Module, inputs and named parameters, made directly on `device` ("cpu", "cuda", "meta").

        `seed` decides every value. Raises UserError where the user's code fails.
        """
        instance = self.build(device=device, seed=seed)
        for name, tensor in self.constants.items():
            instance.parameters[name] = tensor.to(device)
        return instance

    def build(self, *, device: str, seed: int) -> Instance:
        """`instantiate` without the constants of forward."""
        self.load()

        def draw_inputs(input_seed: int) -> tuple[list[Any], pytree.TreeSpec]:
            return self._draw_inputs(device, input_seed)

        with kept_alive(), _seeded(2 * seed, device), self._filled(), made_on(device):
            module = self._make_module(device)
        module.train(self.mode == "train")
        inputs, structure = self._first_inputs(device) if self._facts else draw_inputs(seed)
        return Instance(module, inputs, named_tensors(module), structure, draw_inputs)

    def _filled(self) -> contextlib.AbstractContextManager[None]:
        """A module that a model wrote finds no memory of others in what it did not fill."""
        return filled_memory() if self._ref.kind == "reference" else contextlib.nullcontext()

    @cached_property
    def _saved(self) -> tuple[Any, tuple[Any, ...]]:
        """A live problem's module or function and example inputs."""
        with kept_alive():
            return load_live(Path(self._ref.path))

    def _make_module(self, device: str) -> torch.nn.Module:
        target = getattr(self._module, self._ref.callable) if self._module else self._saved[0]
        try:
            if inspect.isclass(target):
                arguments: Any = getattr(self._module, "get_init_inputs", tuple)()
                return _moved(target(*arguments), device)
            if isinstance(target, torch.nn.Module):
                return _moved(copy.deepcopy(target), device)
        except Exception as error:
            raise self.user_error(error, "constructing the module") from error
        return FunctionModule(target)

    def _first_inputs(self, device: str) -> tuple[list[Any], pytree.TreeSpec]:
        flat, structure = pytree.tree_flatten(_to_device(copy.deepcopy(self._saved[1]), device))
        return resized(flat, self._ref.sizes), structure

    def _draw_inputs(self, device: str, seed: int) -> tuple[list[Any], pytree.TreeSpec]:
        with _seeded(2 * seed + 1, device), self._filled(), made_on(device):
            if self._module is None:
                drawn: Any = shuffled(self._saved[1], seed)
            elif self._ref.inputs is not None:
                drawn = draw(parse_inputs(self._ref.inputs))
            else:
                drawn = self._call_get_inputs(self._module.get_inputs)
        if isinstance(drawn, torch.Tensor):
            drawn = (drawn,)
        flat, structure = pytree.tree_flatten(_to_device(tuple(drawn), device))
        if not any(isinstance(leaf, torch.Tensor) for leaf in flat):
            raise UserError(f"{self.path}: get_inputs() returns no tensors; return a list of tensors")
        return resized(flat, self._ref.sizes), structure

    def _call_get_inputs(self, get_inputs: Callable[[], Any]) -> Any:
        try:
            with kept_alive():
                drawn = get_inputs()
        except Exception as error:
            raise self.user_error(error, "get_inputs()") from error
        if not isinstance(drawn, (list, tuple, torch.Tensor)):
            raise UserError(f"{self.path}: get_inputs() returns a {type(drawn).__name__}; return a list of tensors")
        return drawn

    def user_error(self, error: BaseException, doing: str) -> UserError:
        """An exception from the user's code as a UserError (OutOfMemory) with file, line and remedy."""
        if isinstance(error, UserError):
            return error
        summary = str(error).strip().splitlines()
        if _out_of_memory(error):
            return OutOfMemory(
                f"{locate(error, self.path)}: out of memory: {doing} raised {summary[0] if summary else error!r}; "
                f"use smaller sizes; {self.settable_text()}"
            )
        remedy = f"correct it, or the constants given by --set; {self.settable_text()}"
        if not self._ref.overrides:
            remedy = "correct the file, or the sizes"
        return UserError(
            f"{locate(error, self.path)}: {doing} raised {type(error).__name__}: "
            f"{summary[0] if summary else 'no message'}; {remedy}"
        )


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers and plain tensor attributes by dotted name; a shared tensor under each name."""
    found: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    for prefix, part in module.named_modules(remove_duplicate=False):
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                found.setdefault(f"{prefix}.{name}" if prefix else name, value)
    return found


def load_problem(
    target: str, *, overrides: Mapping[str, str] | None = None, inputs: str | None = None, mode: Mode = "eval"
) -> Problem:
    """Load `file.py` (`Model`, `get_inputs`, `get_init_inputs`) or `file.py:callable`.

    `overrides` are Python literals by name of a module-level constant; `inputs` is a description such as
    "f32[4096,1024] f32[1024]" for `file.py:callable`. Raises UserError naming file, line and remedy.
    """
    path, _, name = target.rpartition(":") if _names_callable(target) else (target, "", "Model")
    if mode not in ("eval", "train"):
        raise UserError(f"--mode {mode}: the mode is eval or train")
    if inputs is not None:
        parse_inputs(inputs)
        if not _names_callable(target):
            raise UserError(f"--inputs goes with file.py:callable, and {target!r} names no callable")
    ref = ProblemRef(
        path=str(Path(path).resolve()),
        callable=name,
        overrides=dict(overrides or {}),
        inputs=inputs,
        mode=mode,
    )
    return load_ref(ref)


def live_problem(
    target: Callable[..., Any], example_inputs: Sequence[Any], folder: Path, *, mode: Mode = "eval"
) -> Problem:
    """A problem from a module or function of the caller, saved in `folder`, where workers find it again."""
    save_live(target, example_inputs, folder)
    return load_ref(ProblemRef(kind="live", path=str(folder.resolve()), callable="", mode=mode))


def load_ref(ref: ProblemRef) -> Problem:
    """Load what a ProblemRef describes; raises UserError."""
    path = Path(ref.path)
    if ref.kind == "live":
        return Problem(ref, source="", facts=read_facts(path))
    if path.is_dir():
        raise UserError(f"{path}: is a directory; name a Python file")
    try:
        source = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a Python file: {error}") from None
    problem = Problem(ref, source=source)
    if ref.kind != "reference" or jail.inside():
        problem.load()
    return problem


def _names_callable(target: str) -> bool:
    path, colon, name = target.rpartition(":")
    return bool(colon) and bool(path) and name.isidentifier()


def _moved(module: Any, device: str) -> torch.nn.Module:
    """The module on `device`, for what its constructor put elsewhere (plain tensor attributes included)."""
    if not isinstance(module, torch.nn.Module):
        raise UserError(f"a {type(module).__name__} was made where an nn.Module is needed")
    module.to(device)
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                setattr(part, name, placed(value, device))
    return module


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _to_device(values: Any, device: str) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: placed(tensor, device), values)


@contextlib.contextmanager
def _seeded(seed: int, device: str) -> Iterator[None]:
    """All generators that user code may draw from start at `seed` inside; their states are restored after."""
    devices = [torch.cuda.current_device()] if device.startswith("cuda") else []
    with one_thread, torch.random.fork_rng(devices=devices):
        python_state, numpy_state = random.getstate(), np.random.get_state()
        torch.manual_seed(seed % _SEED_RANGE)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
