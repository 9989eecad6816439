"""Reads input descriptions such as "f32[4096,1024] i64[16] 2.5" and draws inputs for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels.errors import UserError

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f64": torch.float64,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}
_TENSOR = re.compile(r"(?P<dtype>[a-z]+\d*)\[(?P<shape>[^\[\]]*)\]")
_TOKEN = re.compile(r"[^\s\[\]]+\[[^\]]*\]|\S+")
_INT_RANGE = 10
"""Integer inputs are drawn from 0 to 9: small enough to serve as indices of most things."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One tensor of an input description."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    def draw(self) -> torch.Tensor:
        """A tensor on the default device: normal floats, integers in 0..9, fair booleans."""
        if self.dtype is torch.bool:
            return torch.randint(0, 2, self.shape).bool()
        if self.dtype.is_floating_point:
            return torch.randn(self.shape, dtype=self.dtype)
        return torch.randint(0, _INT_RANGE, self.shape, dtype=self.dtype)


def parse_inputs(text: str) -> tuple[TensorInput | int | float, ...]:
    """Parse `dtype[sizes]` and plain numbers, separated by blanks; raises UserError naming the token."""
    items = tuple(_parse_token(token) for token in _TOKEN.findall(text))
    if not any(isinstance(item, TensorInput) for item in items):
        raise UserError(f'--inputs {text!r} describes no tensor; write for example "f32[4096,1024] f32[1024]"')
    return items


def draw(items: tuple[TensorInput | int | float, ...]) -> list[Any]:
    """Draw every tensor of a parsed description on the default device; numbers stay as they are."""
    return [item.draw() if isinstance(item, TensorInput) else item for item in items]


def described(items: Iterable[TensorInput | int | float]) -> str:
    """The description that `parse_inputs` reads as these items."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    texts = []
    for item in items:
        sizes = ",".join(map(str, item.shape)) if isinstance(item, TensorInput) else ""
        texts.append(f"{names[item.dtype]}[{sizes}]" if isinstance(item, TensorInput) else repr(item))
    return " ".join(texts)


def _parse_token(token: str) -> TensorInput | int | float:
    for number in (int, float):
        try:
            return number(token)
        except ValueError:
            continue
    match = _TENSOR.fullmatch(token)
    known = ", ".join(DTYPES)
    if match is None:
        raise UserError(f"--inputs: cannot read {token!r}; write dtype[sizes] with dtype one of {known}, or a number")
    if match["dtype"] not in DTYPES:
        raise UserError(f"--inputs: unknown dtype {match['dtype']!r} in {token!r}; known: {known}")
    sizes = [part.strip() for part in match["shape"].split(",")] if match["shape"].strip() else []
    if not all(part.isdigit() for part in sizes):
        raise UserError(f"--inputs: cannot read the sizes of {token!r}; write for example f32[4096,1024]")
    return TensorInput(DTYPES[match["dtype"]], tuple(int(part) for part in sizes))
