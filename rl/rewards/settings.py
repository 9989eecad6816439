"""What rewards are made by: gates, ties, shares and auxiliary terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from warpsmith.kernels.errors import UserError
from warpsmith.rl.rewards.auxiliary import TERMS, Term

Scheme = Literal["rank", "share"]
AuxiliaryMode = Literal["off", "tie_break", "weighted"]


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """The defaults are those of docs/learning.md."""

    screened: bool = False
    """Whether a quick check is enough to be ranked; else only the judge's full check is."""
    margin: float = 0.03
    """Relative difference of two times below which they tie whatever their intervals say."""
    coverage: float = 0.3
    """Share of the device time in own kernels below which a candidate earns as an incorrect one."""
    scheme: Scheme = "rank"
    """`rank`: every place counts; `share`: 1 for the top share, -1 for the bottom one, 0 between."""
    top: float = 0.25
    bottom: float = 0.25
    validity: float | None = None
    """Largest reward, as a distance from 0, of a group without a verified kernel, for how far its members came. None:
    such a group is skipped."""
    auxiliary: AuxiliaryMode = "off"
    terms: tuple[Term, ...] = ()
    """Auxiliary terms; without any, auxiliary rewards are off whatever the mode says."""
    strength: float = 0.5
    """Of the auxiliary terms of mode `weighted`, as a share of half a rank step; below 1, so that no place is lost."""

    def __post_init__(self) -> None:
        shares = {"coverage": self.coverage, "top": self.top, "bottom": self.bottom}
        for name, value in shares.items():
            if not 0.0 <= value <= 1.0:
                raise UserError(f"rewards: {name} = {value} is no share: choose a number from 0 to 1")
        if self.top + self.bottom > 1.0:
            raise UserError(f"rewards: top {self.top} and bottom {self.bottom} overlap: together they are 1 at most")
        if not 0.0 <= self.margin < 1.0:
            raise UserError(f"rewards: margin = {self.margin}: choose a relative difference from 0 to below 1")
        if self.validity is not None and not 0.0 < self.validity <= 1.0:
            raise UserError(f"rewards: validity = {self.validity}: choose a cap above 0 and at most 1, or leave it out")
        if not 0.0 < self.strength < 1.0:
            raise UserError(f"rewards: strength = {self.strength}: choose a number above 0 and below 1")


def settings_of(table: Mapping[str, Any]) -> RewardSettings:
    """Settings from a table of a configuration file; `terms` are names, as `memory.shared_use`. UserError names what is
    not known, and what there is."""
    known = [field.name for field in fields(RewardSettings)]
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise UserError(f"rewards: there is no {unknown[0]!r}: choose among {', '.join(known)}")
    named = {f"{term.role}.{term.name}": term for term in TERMS}
    chosen = dict(table)
    if "terms" in chosen:
        wrong = [name for name in chosen["terms"] if name not in named]
        if wrong:
            raise UserError(f"rewards: there is no term {wrong[0]!r}: choose among {', '.join(named)}")
        chosen["terms"] = tuple(named[name] for name in chosen["terms"])
    try:
        return TypeAdapter(RewardSettings).validate_python(chosen)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"rewards: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
