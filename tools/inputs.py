"""Inputs for a verdict: several distributions under a secret seed, each within the domain of what is
shipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from warpsmith.kernels.problem import Instance

Domain = Literal["fixed", "labels", "probability", "log_probability", "unit", "positive", "real"]

SHIPPED = "shipped"
_TILE = 1024
"""Elements per planted outlier."""
_BLOCK = 64
"""Elements of one value in the kind `blocks`."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of drawing inputs."""

    name: str
    zero_mean: bool
    """Whether the rule on the ratio to eager applies; elsewhere its rounding errors may cancel by luck."""
    draw: Callable[[torch.Tensor, torch.Generator], torch.Tensor] | None
    """Fills a flat tensor; None: whatever the problem's own `get_inputs` gives."""


def _normal(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return out.normal_(generator=generator)


def _scaled(factor: float) -> Callable[[torch.Tensor, torch.Generator], torch.Tensor]:
    def draw(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return out.normal_(generator=generator).mul_(factor)

    return draw


def _heavy_tail(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal, with one value a hundred times larger in each tile."""
    out.normal_(generator=generator)
    tiles = -(-out.numel() // _TILE)
    where = torch.arange(tiles, device=out.device) * _TILE
    where += torch.randint(0, _TILE, (tiles,), generator=generator, device=out.device)
    where.clamp_(max=out.numel() - 1)
    out[where] *= 100
    return out


def _blocks(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Runs of one value in the first half, ramps in the second: clusters of equal extrema, sorted
    stretches."""
    half = out.numel() // 2
    runs = -(-half // _BLOCK)
    values = torch.empty(runs, dtype=out.dtype, device=out.device).normal_(generator=generator)
    values = values.mul_(2).round_().div_(2)
    out[:half] = values.repeat_interleave(_BLOCK)[:half]
    ramp = torch.linspace(-3, 3, min(_TILE, max(1, out.numel() - half)), dtype=out.dtype, device=out.device)
    out[half:] = ramp.repeat(-(-(out.numel() - half) // ramp.numel()))[: out.numel() - half]
    return out


KINDS: tuple[Kind, ...] = (
    Kind("normal", True, _normal),
    Kind(SHIPPED, False, None),
    Kind("large", True, _scaled(1e3)),
    Kind("tiny", True, _scaled(1e-3)),
    Kind("heavy_tail", True, _heavy_tail),
    Kind("blocks", False, _blocks),
    Kind("normal_again", True, _normal),
)
QUICK = ("normal", SHIPPED)


@dataclass(frozen=True, slots=True)
class InputDomain:
    """What a shipped input shows of the values it may take."""

    domain: Domain
    dim: int = -1
    """For probabilities: the dimension that sums to one."""
    masked: bool = False
    """At least a tenth of the values are exact zeros: their places are kept."""
    symmetric: bool = False
    sign: int = 0
    """The sign that all drawn values get, or 0."""
    still: str = ""
    """Not empty: every call of `get_inputs` gives the same values, and what they look like."""


def domain_of(value: Any, *, still: bool) -> InputDomain:
    """Reads a domain off shipped values; `still` says that `get_inputs` gives the same ones every time. Integers and
    Python numbers are `fixed`; so are labels held as floats where `get_inputs` itself varies them."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return InputDomain("fixed")
    if not value.is_floating_point():
        what = "booleans" if value.dtype is torch.bool else "integers" if not value.is_complex() else "complex"
        return InputDomain("fixed", still=f"its values are {what}" if still else "")
    core = _core(value)
    low, high = float(core.min()), float(core.max())
    integral = bool((core == core.round()).all())
    if low == high and still and (integral or core.numel() > 1) and _unit_dim(core) is None:
        sign = (low > 0) - (low < 0)
        return InputDomain("real", sign=sign, still="it is constant")
    if integral:
        if still:
            return InputDomain("labels", symmetric=_symmetric(core), still="its values look like labels")
        return InputDomain("fixed")
    return _continuous(core, low, high)


def _continuous(value: torch.Tensor, low: float, high: float) -> InputDomain:
    """The domain of values that are not all whole."""
    dim = _unit_dim(value) if low >= 0 else None
    if dim is not None:
        return InputDomain("probability", dim)
    dim = _unit_dim(value.exp()) if high <= 0 else None
    if dim is not None:
        return InputDomain("log_probability", dim)
    masked = float((value == 0).sum()) >= 0.1 * value.numel()
    domain: Domain = "real" if low < 0 else "unit" if high <= 1 else "positive"
    return InputDomain(domain, masked=masked, symmetric=_symmetric(value))


def _symmetric(value: torch.Tensor) -> bool:
    square = value.dim() >= 2 and value.shape[-1] == value.shape[-2] > 1
    return square and bool((value == value.mT).all())


def draw_inputs(
    kind: Kind, instance: Instance, domains: Sequence[InputDomain], *, seed: int, signed: bool = True
) -> list[Any]:
    """Flat inputs of one kind on the instance's device. With `signed`, inputs whose shipped values are
    merely non-negative are drawn with both signs; without, they stay in the range that was shipped."""
    shipped = instance.fresh_inputs(seed)
    if kind.draw is None:
        return shipped
    inputs = []
    for position, (value, domain) in enumerate(zip(shipped, domains, strict=True)):
        if domain.domain == "fixed":
            inputs.append(value)
            continue
        generator = torch.Generator(device=value.device)
        generator.manual_seed((seed + 7919 * (position + 1)) % 2**63)
        core = _core(value)
        if domain.domain == "labels":
            drawn = _redrawn(core, generator, domain.symmetric)
        else:
            flat = torch.empty(core.numel(), dtype=core.dtype, device=core.device)
            drawn = _within(kind.draw(flat, generator).view(core.shape), core, domain, signed)
        made = _like(core, drawn)
        inputs.append(made if made.shape == value.shape else made.expand(value.shape))
    return inputs


def _redrawn(value: torch.Tensor, generator: torch.Generator, symmetric: bool) -> torch.Tensor:
    """Slices along the first dimension where they differ, drawn with replacement: each row of a mask, each one-hot
    vector stays whole. What is sorted or symmetric stays so."""
    dim = next(d for d in range(value.dim()) if bool((value != value.narrow(d, 0, 1)).any()))
    dim = value.dim() - 1 if symmetric else dim
    count = value.shape[dim]
    picks = torch.randint(0, count, (count,), generator=generator, device=value.device)
    if value.numel() == count:
        flat = value.flatten()
        rises = bool((flat[1:] >= flat[:-1]).all())
        if rises or bool((flat[1:] <= flat[:-1]).all()):
            picks = picks.sort().values
    drawn = value.index_select(dim, picks)
    return drawn.index_select(dim - 1, picks) if symmetric else drawn


def perturb_parameters(instance: Instance, *, seed: int) -> None:
    """Moves floating parameters and buffers by up to a fifth, and all-zero ones by up to a tenth, in place.
    Their signs stay. Freshly made weights of one and biases of zero would hide a kernel that leaves them
    out."""
    named = [*instance.module.named_parameters(), *instance.module.named_buffers()]
    with torch.no_grad():
        for position, (_, tensor) in enumerate(named):
            if not tensor.is_floating_point() or tensor.numel() == 0:
                continue
            generator = torch.Generator(device=tensor.device)
            generator.manual_seed((seed + 104729 * (position + 1)) % 2**63)
            noise = torch.empty_like(tensor).uniform_(-1, 1, generator=generator)
            if bool((tensor == 0).all()):
                tensor.add_(noise, alpha=0.1)
            else:
                tensor.mul_(noise.mul_(0.2).add_(1))


def attempts(domains: Sequence[InputDomain]) -> list[tuple[list[InputDomain], bool]]:
    """Domains and `signed` for draws, the widest first: where the module refuses values unlike the shipped ones,
    a later attempt may do."""
    signs = (True, False) if any(domain.domain in ("unit", "positive") for domain in domains) else (True,)
    given = [replace(domain, domain="fixed") if domain.still else domain for domain in domains]
    tries = [list(domains)] if given == list(domains) else [list(domains), given]
    return [(one, signed) for one in tries for signed in signs]


def never_varied(domains: Sequence[InputDomain]) -> list[str]:
    """A note for each input that keeps its shipped values in every draw."""
    return [
        f"input in{position} was never varied: {domain.still}"
        for position, domain in enumerate(domains)
        if domain.still and domain.domain == "fixed"
    ]


def _within(drawn: torch.Tensor, shipped: torch.Tensor, domain: InputDomain, signed: bool) -> torch.Tensor:
    if domain.domain == "probability":
        return drawn.softmax(domain.dim)
    if domain.domain == "log_probability":
        return drawn.log_softmax(domain.dim)
    if domain.sign:
        return drawn.abs_().mul_(domain.sign)
    if not signed and domain.domain == "unit":
        drawn = drawn.sigmoid_()
    elif not signed and domain.domain == "positive":
        drawn = drawn.abs_()
    if domain.symmetric:
        drawn = (drawn + drawn.mT) / 2
    return drawn.masked_fill(shipped == 0, 0) if domain.masked else drawn


def _like(shipped: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """`drawn` with the strides and the storage offset of `shipped`."""
    if shipped.is_contiguous() and shipped.storage_offset() == 0:
        return drawn.contiguous()
    count = shipped.untyped_storage().nbytes() // shipped.element_size()
    base = torch.zeros(count, dtype=shipped.dtype, device=shipped.device)
    return base.as_strided(shipped.shape, shipped.stride(), shipped.storage_offset()).copy_(drawn)


def copy_of(value: torch.Tensor) -> torch.Tensor:
    """The same contents, strides and storage offset at another address."""
    core = _core(value)
    copied = _like(core, core)
    copied = copied.clone() if copied.data_ptr() == core.data_ptr() else copied
    return copied if core is value else copied.expand(value.shape)


def _core(value: torch.Tensor) -> torch.Tensor:
    """A view of the elements that do not share memory: what was expanded, before it was."""
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            value = value.narrow(dim, 0, 1)
    return value


def _unit_dim(value: torch.Tensor) -> int | None:
    for dim in reversed(range(value.dim())):
        if value.shape[dim] > 1:
            sums = value.sum(dim, dtype=torch.float64)
            if bool(((sums - 1).abs() < 1e-3).all()):
                return dim
    return None
