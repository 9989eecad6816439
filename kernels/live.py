"""Saves a caller's own module with example inputs, so that worker processes can load it again."""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.overrides import run_module
from warpsmith.kernels.placement import distinct, placed, strided_like
from warpsmith.kernels.records import Record

_OBJECTS = "problem.pt"
_FACTS = "problem.json"
LOADING_MAIN = "WARPSMITH_LOADING_MAIN"
"""Set while a worker runs the caller's script again to find a class of it."""


class LiveFacts(Record):
    """What stands beside a saved module: enough to name, hash and find it without loading it."""

    name: str
    source_path: str | None
    """File that defines the class or function, where known."""
    main_path: str | None
    """File that the saving process ran as `__main__`, in which its classes are looked up again."""
    search_path: tuple[str, ...] = ()
    """Folders that the saving process imported from, absolute."""
    fingerprint: str
    """SHA-256 over source code, attributes and the tensors' shapes, strides and dtypes, not their values."""


def save_live(target: Callable[..., Any], example_inputs: Sequence[Any], folder: Path) -> LiveFacts:
    """Write module or function and inputs (moved to the CPU, strides kept) to `folder`.

    Raises UserError where the object cannot be pickled (lambdas, classes inside functions, notebooks).
    """
    _check_inputs(example_inputs)
    inputs = pytree.tree_map_only(torch.Tensor, lambda tensor: placed(tensor, "cpu"), tuple(example_inputs))
    main_path = getattr(sys.modules.get("__main__"), "__file__", None)
    kind = type(target) if isinstance(target, torch.nn.Module) else target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"target": target, "inputs": inputs}, folder / _OBJECTS)
        fingerprint = _fingerprint(target, inputs)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(
            f"the module cannot be saved for the worker processes ({error}); "
            "define its class at the top level of a file that can be imported"
        ) from None
    except OSError as error:
        raise UserError(f"{folder}: the module cannot be saved: {error}") from None
    facts = LiveFacts(
        name=getattr(kind, "__name__", "module"),
        source_path=_source_path(kind),
        main_path=str(Path(main_path).resolve()) if main_path else None,
        search_path=tuple(str(Path(entry).resolve()) for entry in sys.path),
        fingerprint=fingerprint,
    )
    (folder / _FACTS).write_text(facts.model_dump_json())
    return facts


def _check_inputs(example_inputs: Any) -> None:
    if not isinstance(example_inputs, (list, tuple)):
        kind = type(example_inputs).__name__
        raise UserError(f"example_inputs is a list or tuple of forward's arguments, not a {kind}")
    tensors = [leaf for leaf in pytree.tree_leaves(example_inputs) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise UserError("example_inputs holds no tensors; give one example of every argument of forward")
    if any(tensor.is_meta for tensor in tensors):
        raise UserError("example_inputs holds a meta tensor, which has no values; give tensors on the CPU or the GPU")


def read_facts(folder: Path) -> LiveFacts:
    """The facts written by `save_live`; raises UserError if there are none."""
    try:
        return LiveFacts.model_validate_json((folder / _FACTS).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: holds no saved module: {error}") from None


def load_live(folder: Path) -> tuple[Any, tuple[Any, ...]]:
    """Module or function and its example inputs, on the CPU; raises UserError if they cannot be loaded."""
    facts = read_facts(folder)
    sys.path.extend(entry for entry in facts.search_path if entry not in sys.path)
    reader = ModuleType("warpsmith_live_pickle")
    reader.__dict__.update(Unpickler=_unpickler(facts), load=pickle.load)
    try:
        saved = torch.load(folder / _OBJECTS, map_location="cpu", weights_only=False, pickle_module=reader)
    except (OSError, pickle.UnpicklingError, AttributeError, ImportError, RuntimeError, EOFError) as error:
        raise UserError(f"{folder}: the saved module cannot be loaded: {error}") from None
    return saved["target"], saved["inputs"]


def shuffled(example: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
    """Example inputs with the elements of every tensor in another order: same values, shapes and strides."""
    generator = torch.Generator().manual_seed(seed)

    def shuffle(tensor: torch.Tensor) -> torch.Tensor:
        source, out = distinct(tensor), strided_like(tensor, "cpu")
        order = torch.randperm(source.numel(), generator=generator, device="cpu")
        distinct(out).copy_(source.reshape(-1)[order].reshape(source.shape))
        return out

    mixed: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, shuffle, example)
    return mixed


def _unpickler(facts: LiveFacts) -> type[pickle.Unpickler]:
    class LiveUnpickler(pickle.Unpickler):
        """Finds objects of the saving process's `__main__` in the file that it ran."""

        def find_class(self, module_name: str, global_name: str, /) -> Any:
            elsewhere = module_name == "__main__" and not hasattr(sys.modules["__main__"], global_name)
            if elsewhere and facts.main_path is not None:
                return getattr(_main_module(Path(facts.main_path)), global_name)
            return super().find_class(module_name, global_name)

    return LiveUnpickler


def _main_module(path: Path) -> ModuleType:
    """The file run as a module that is not `__main__`, once a process."""
    name = f"warpsmith_main_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    os.environ[LOADING_MAIN] = "1"
    try:
        return run_module(path.read_text(), path, name=name, overrides={})
    finally:
        del os.environ[LOADING_MAIN]


class _ShapePickler(pickle.Pickler):
    """Pickles tensors as their shape, strides and dtype."""

    def persistent_id(self, item: Any, /) -> Any:
        """The stand-in for a tensor; None lets everything else be pickled as usual."""
        if isinstance(item, torch.Tensor):
            return (tuple(item.shape), item.stride(), str(item.dtype))
        return None


def _fingerprint(target: Any, inputs: tuple[Any, ...]) -> str:
    stream = io.BytesIO()
    _ShapePickler(stream, protocol=4).dump((target, inputs))
    digest = hashlib.sha256(stream.getvalue())
    kinds = {type(part) for part in target.modules()} if isinstance(target, torch.nn.Module) else {target}
    for kind in sorted(kinds, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}"):
        if not kind.__module__.startswith("torch."):
            digest.update(_source(kind).encode())
    return digest.hexdigest()


def _source(kind: Any) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return f"{kind.__module__}.{kind.__qualname__}"


def _source_path(kind: Any) -> str | None:
    try:
        return inspect.getsourcefile(kind)
    except (OSError, TypeError):
        return None
