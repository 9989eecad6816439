"""Inputs for a verdict: several distributions under a secret seed, each within the domain of what is
shipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from warpsmith.kernels.problem import Instance
from warpsmith.tools.verification.domains import (
    InputDomain,
    computable,
    core_of,
    like,
    place_of,
    redrawn_integers,
    redrawn_labels,
    within,
)

SHIPPED = "shipped"
WHOLE = "whole"
NONFINITE = "nonfinite"
_TILE = 1024
"""Elements per planted outlier."""
_BLOCK = 64
"""Elements of one value in the kind `blocks`."""
_PLANTED = 97
"""Elements per NaN or infinity in the kind `nonfinite`."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of drawing inputs."""

    name: str
    zero_mean: bool
    """Whether the rule on the ratio to eager applies; elsewhere its rounding errors may cancel by luck."""
    draw: Callable[[torch.Tensor, torch.Generator], torch.Tensor] | None
    """Fills a row-major tensor; None: whatever the problem's own `get_inputs` gives."""
    twice: bool = False
    """Whether a full verdict runs the candidate a second time, over another poison."""
    judged: bool = True
    """Whether a deviation refuses a candidate; else it is told as a warning."""
    plainer: Callable[[torch.Tensor, torch.Generator], torch.Tensor] | None = None
    """What is drawn instead where `draw` gives the module no finite result."""


def _normal(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return out.normal_(generator=generator)


def _large(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A thousand times as large, where products of that do not leave the range at once."""
    return out.normal_(generator=generator).mul_(1e3 if torch.finfo(out.dtype).max > 1e9 else 32)


def _tiny(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return out.normal_(generator=generator).mul_(1e-3)


def _heavy_tail(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal, with one value a hundred times larger in each tile."""
    flat = out.normal_(generator=generator).view(-1)
    tiles = -(-flat.numel() // _TILE)
    where = torch.arange(tiles, device=out.device) * _TILE
    where += torch.randint(0, _TILE, (tiles,), generator=generator, device=out.device)
    where.clamp_(max=flat.numel() - 1)
    flat[where] *= 100
    return out


def _blocks(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Runs of one value in the first half, ramps in the second: clusters of equal extrema, sorted
    stretches."""
    flat = out.view(-1)
    half = flat.numel() // 2
    runs = -(-half // _BLOCK)
    values = torch.empty(runs, dtype=out.dtype, device=out.device).normal_(generator=generator)
    values = values.mul_(2).round_().div_(2)
    runs = half // _BLOCK
    flat[: runs * _BLOCK].view(runs, _BLOCK).copy_(values[:runs, None])
    flat[runs * _BLOCK : half] = values[-1:]
    rest = flat.numel() - half
    ramp = torch.linspace(-3, 3, min(_TILE, max(1, rest)), dtype=out.dtype, device=out.device)
    ramps = rest // ramp.numel()
    flat[half : half + ramps * ramp.numel()].view(ramps, ramp.numel()).copy_(ramp)
    flat[half + ramps * ramp.numel() :] = ramp[: rest - ramps * ramp.numel()]
    return out


def _whole(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Small whole numbers: what is linear in them is exact in every order of summation."""
    most = 2 if torch.finfo(out.dtype).eps < 1e-4 else 1
    values = torch.empty(out.shape, dtype=torch.int8, device=out.device)
    return out.copy_(values.random_(-most, most + 1, generator=generator))


def _edges(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows that are nearly zero (both zeros, denormals, little noise) but for their last element, the largest, and
    their first, the smallest."""
    out.normal_(generator=generator).mul_(1e-2)
    picks = torch.empty(out.shape, dtype=torch.int8, device=out.device).random_(0, 8, generator=generator)
    out.masked_fill_(picks == 0, 0.0).masked_fill_(picks == 1, -0.0)
    out.masked_fill_(picks == 2, torch.finfo(out.dtype).smallest_normal / 4)
    if out.dim():
        out[..., 0], out[..., -1] = -4.0, 5.0
    return out


def _zero_slices(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """As `_edges`, with one slice across each dimension that holds exact zeros and nothing else: what is reduced along
    the others has no spread and no norm there."""
    _edges(out, generator)
    place = float(torch.rand((), generator=generator, device=generator.device))
    for dim, size in enumerate(out.shape):
        # Neither the first nor the last, which hold the extrema; the same in dimensions of one size, for symmetry.
        if size > 1:
            out.select(dim, min(size - 1, 1 + int(place * max(1, size - 2)))).zero_()
    return out


def _negative(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Below zero throughout: a maximum that starts at zero, or padding that takes part, shows."""
    return out.normal_(generator=generator).abs_().add_(0.25).neg_()


def _nonfinite(out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal, with a NaN or an infinity here and there."""
    flat = out.normal_(generator=generator).view(-1)
    count = max(1, flat.numel() // _PLANTED)
    where = torch.randint(0, flat.numel(), (count,), generator=generator, device=out.device)
    for offset, value in enumerate((float("nan"), float("inf"), float("-inf"))):
        flat[where[offset::3]] = value
    return out


KINDS: tuple[Kind, ...] = (
    Kind("normal", True, _normal, twice=True),
    Kind(SHIPPED, False, None, twice=True),
    Kind("large", True, _large),
    Kind("tiny", True, _tiny),
    Kind("heavy_tail", True, _heavy_tail),
    Kind("blocks", False, _blocks, twice=True),
    Kind(WHOLE, False, _whole),
    Kind("edges", False, _zero_slices, plainer=_edges),
    Kind("negative", False, _negative),
    Kind("normal_again", True, _normal, twice=True),
    Kind(NONFINITE, False, _nonfinite, judged=False),
)
QUICK = ("normal", SHIPPED)


def draw_inputs(
    kind: Kind, instance: Instance, domains: Sequence[InputDomain], *, seed: int, signed: bool = True
) -> list[Any]:
    """Flat inputs of one kind on the instance's device. With `signed`, inputs whose shipped values are
    merely non-negative are drawn with both signs; without, they stay in the range that was shipped."""
    shipped = instance.fresh_inputs(seed)
    if kind.draw is None:
        return shipped
    inputs = []
    for position, domain in enumerate(domains):
        # Shipped values go as soon as those in their place are drawn: twice all inputs may not fit.
        value, shipped[position] = shipped[position], None
        if domain.domain == "fixed":
            inputs.append(value)
            continue
        generator = torch.Generator(device=value.device)
        generator.manual_seed((seed + 7919 * (position + 1)) % 2**63)
        whole, core = value.shape, core_of(value)
        place, dtype = place_of(core), core.dtype
        if domain.domain == "labels":
            drawn = redrawn_labels(core, generator, domain.symmetric)
        elif domain.domain == "integers":
            drawn = redrawn_integers(core, generator, domain.symmetric)
        else:
            plain: torch.Tensor | None = computable(core)
            assert plain is not None
            empty = torch.empty_like(plain, memory_format=torch.contiguous_format, device="meta")
            if not domain.masked:
                plain = None
                del value, core
            filled = torch.empty(empty.shape, dtype=empty.dtype, device=generator.device)
            drawn = within(kind.draw(filled, generator), plain, domain, signed).to(dtype)
            del filled, plain
        made = like(place, drawn)
        del drawn
        inputs.append(made if made.shape == whole else made.expand(whole))
    return inputs


def perturb_parameters(instance: Instance, *, seed: int) -> None:
    """Moves floating parameters and buffers by up to a fifth, and all-zero ones by up to a tenth, in place.
    Their signs stay. Freshly made weights of one and biases of zero would hide a kernel that leaves them
    out."""
    for tensor, generator in _floating(instance, seed):
        noise = torch.empty(tensor.shape, device=tensor.device).uniform_(-1, 1, generator=generator).to(tensor.dtype)
        if bool((tensor == 0).all()):
            tensor.add_(noise, alpha=0.1)
        else:
            tensor.mul_(noise.mul_(0.2).add_(1))


def round_parameters(instance: Instance, *, seed: int) -> None:
    """Makes floating parameters and buffers whole, in place: their sign, or where they are zero throughout one of
    -1, 0, 1. Together with whole inputs the results of linear modules are exact."""
    for tensor, generator in _floating(instance, seed):
        if bool((tensor == 0).all()):
            values = torch.empty(tensor.shape, dtype=torch.int8, device=tensor.device)
            tensor.copy_(values.random_(-1, 2, generator=generator))
        else:
            tensor.copy_(tensor.sign())


def _floating(instance: Instance, seed: int) -> list[tuple[torch.Tensor, torch.Generator]]:
    """Floating parameters and buffers, each with a generator; detached, so that they can be written."""
    named = [*instance.module.named_parameters(), *instance.module.named_buffers()]
    found = []
    for position, (_, tensor) in enumerate(named):
        if tensor.is_floating_point() and tensor.numel():
            generator = torch.Generator(device=tensor.device)
            generator.manual_seed((seed + 104729 * (position + 1)) % 2**63)
            found.append((tensor.detach(), generator))
    return found


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
