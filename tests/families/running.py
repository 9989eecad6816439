"""Runs candidates on the emulator and holds them to torch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from regions import Case

from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate
from warpsmith.kernels.slots import Values
from warpsmith.sandbox.emulator.backend import EmulatorBackend
from warpsmith.tools.compile import Compiler

POISONS = (0xA5, 0xFF)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same contents and strides one element past an aligned address."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    view = torch.zeros(reach + 1, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride(), 1)
    return view.copy_(tensor)


def poisoned(like: torch.Tensor, byte: int) -> torch.Tensor:
    """A tensor of the same strides, filled with one byte."""
    fresh = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    raw = torch.as_strided(fresh, (fresh.untyped_storage().nbytes() // fresh.element_size(),), (1,))
    raw.view(torch.uint8).fill_(byte)
    return fresh


def assert_computes_in_any_turn(compiler: Compiler, case: Case, candidate: Candidate) -> None:
    """Of a cooperative launch: in two of four, half of the blocks start only when the others cannot go on without
    them."""
    loaded = EmulatorBackend("sm_90").load(compiler.compile(candidate), candidate.plan)
    notes = []
    for _ in range(4):
        outputs = {name: poisoned(tensor, 0xA5) for name, tensor in case.expected.items()}
        result = loaded.launch(case.inputs | outputs, poison=0xA5)
        assert result.failure is None, result.failure
        notes += result.notes
        torch.testing.assert_close(outputs["out0"], case.expected["out0"])
    assert len(notes) == 2


def assert_computes(
    compiler: Compiler, case: Case, candidate: Candidate, *, shift: bool = False, poison: int = POISONS[0]
) -> None:
    """Compile, run with every emulator check on, compare all outputs with torch."""
    report = compiler.compile(candidate)
    assert report.ok, (candidate.values, report.failure)
    assert report.diagnostics == ()
    loaded = EmulatorBackend("sm_90").load(report, candidate.plan)
    outputs = {name: poisoned(tensor, poison) for name, tensor in case.expected.items()}
    inputs = {
        name: misaligned(value) if shift and isinstance(value, torch.Tensor) else value
        for name, value in case.inputs.items()
    }
    result = loaded.launch(inputs | outputs, poison=poison)
    assert result.refused is None, result.refused
    assert result.failure is None, (candidate.values, result.failure)
    for name, expected in case.expected.items():
        torch.testing.assert_close(outputs[name], expected, rtol=case.tolerance, atol=case.tolerance, equal_nan=True)


def assert_compile_cleanly(compiler: Compiler, spec: KernelSpec, combinations: Iterable[Values]) -> None:
    """Every combination compiles without a diagnostic and without spills."""
    for values in combinations:
        report = compiler.compile(spec.emit(values))
        assert report.ok, (values, report.failure)
        assert report.diagnostics == ()
        assert all(resources.spill_stores == 0 for resources in report.resources.values()), values
