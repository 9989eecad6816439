"""The reward of every member of a group: gates, one place for each kernel, ranks or shares, auxiliary terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpsmith.rl.rewards.auxiliary import worths
from warpsmith.rl.rewards.gates import Basis, Member
from warpsmith.rl.rewards.pool import by_kernel, pooled, shared_basis
from warpsmith.rl.rewards.rank import Floats, rank, wins
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.rewards.shares import shares

NO_VERIFIED = "no verified kernel"
ONE = "a group of one"
NONE = "no member counts"


@dataclass(frozen=True, slots=True)
class GroupRewards:
    """One entry a member, in their order."""

    rewards: Floats
    """In [-1, 1]; the sum of the member's parts."""
    counted: NDArray[np.bool_]
    """Members that took part. The others earn 0 and belong to no mean and no denominator."""
    parts: tuple[dict[str, float], ...]
    """By name: `rank` or `share` or `validity`, and `auxiliary.ROLE.TERM`."""
    gates: tuple[str, ...]
    """Why each stands where it does."""
    copies: tuple[int, ...]
    """Counted members that are the same kernel, itself included: its weight in a loss over members."""
    basis: Basis | None = None
    """What costs were compared on."""
    skipped: str | None = None
    """Why nobody earned anything."""
    incumbent: float | None = None
    """What the virtual member would have earned; None where it took no part."""

    @property
    def flat(self) -> bool:
        """Whether it teaches nothing: everybody who counts earned the same."""
        own = self.rewards[self.counted]
        return len(own) == 0 or bool(np.ptp(own) < 1e-12)


def group_rewards(
    members: Sequence[Member], settings: RewardSettings, *, incumbent: Member | None = None
) -> GroupRewards:
    """Rewards of a group that ran on one machine. The incumbent is a virtual member: it is beaten or it beats, and
    earns nothing; one that ran elsewhere is none. ValueError for members of several machines.

    No reward where no member is verified (unless the settings reward validity), where there is nobody to beat, and for
    members that leave the statistics.
    """
    _one_machine(members)
    places = by_kernel(members)
    kernels = [pooled([members[i] for i in own]) for own in places.values()]
    basis = shared_basis([one for one in kernels if one.standing == "verified"])
    kept = [i for i, one in enumerate(kernels) if one.standing == "incorrect" or one.cost(basis) is not None]
    places = dict(list(places.items())[i] for i in kept)
    kernels = [kernels[i] for i in kept]
    result = _Result(members, list(places.values()), basis)
    if not kernels:
        return result.skipped(NONE)
    if all(one.standing == "incorrect" for one in kernels):
        if settings.validity is None or len(kernels) < 2:
            return result.skipped(NO_VERIFIED)
        far = wins([-one.progress for one in kernels], [0.0] * len(kernels), 0.0)
        return result.with_parts({"validity": settings.validity * rank(far)})
    rivals = [*kernels, *_virtual(kernels, incumbent, basis)]
    if len(rivals) < 2:
        return result.skipped(ONE)
    parts, others = _parts(kernels, rivals, basis, settings)
    return result.with_parts(parts, incumbent=others[0] if others else None)


def _parts(
    kernels: Sequence[Member], rivals: Sequence[Member], basis: Basis | None, settings: RewardSettings
) -> tuple[dict[str, Floats], list[float]]:
    """Part -> [kernels], and what the other rivals would earn. `rivals` begins with the kernels."""
    costs = [one.cost(basis) if one.standing == "verified" else None for one in rivals]
    won = wins([c.log if c else None for c in costs], [c.half if c else 0.0 for c in costs], settings.margin)
    scores = rank(won)
    correct = np.array([cost is not None for cost in costs], dtype=bool)
    base = scores
    if settings.scheme == "share":
        base = shares(scores, correct, top=settings.top, bottom=settings.bottom)
    n = len(kernels)
    extra, room = _auxiliary(kernels, base[:n], correct[:n], len(rivals), settings)
    # Everything gives way a little, so that who is first stays within 1 with an auxiliary reward on top.
    parts = {settings.scheme: base[:n]} | extra
    return {name: part / (1 + room) for name, part in parts.items()}, [float(one) / (1 + room) for one in base[n:]]


def _auxiliary(
    kernels: Sequence[Member], base: Floats, correct: NDArray[np.bool_], rivals: int, settings: RewardSettings
) -> tuple[dict[str, Floats], float]:
    """The auxiliary parts, [kernels] each, and the most that their sum can be. Two members never differ by as much in
    it as they do by half a place: the one that wins more keeps the greater reward."""
    if settings.auxiliary == "off" or not settings.terms or rivals < 2:
        return {}, 0.0
    room = settings.strength / (rivals - 1) / 2
    found = {term.part: np.zeros(len(kernels)) for term in settings.terms}
    among = _ties(base, correct) if settings.auxiliary == "tie_break" else [np.flatnonzero(correct)]
    for places in among:
        _, parts = worths(settings.terms, [kernels[i].counters for i in places])
        for name, part in parts.items():
            found[name][places] = room * part
    return found, room


def _ties(base: Floats, correct: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Places of the verified members that earn the same, for each such set."""
    values = np.round(base, 9)
    sets = [np.flatnonzero(correct & (values == value)) for value in np.unique(values[correct])]
    return [places for places in sets if len(places) > 1]


def _virtual(kernels: Sequence[Member], incumbent: Member | None, basis: Basis | None) -> list[Member]:
    """The incumbent, where it can be compared and is not a member already."""
    if incumbent is None or incumbent.standing != "verified" or incumbent.cost(basis) is None:
        return []
    machines = {one.machine for one in kernels if one.standing == "verified"}
    if incumbent.machine not in machines:
        return []
    return [] if any(one.key == incumbent.key for one in kernels) else [incumbent]


def _one_machine(members: Sequence[Member]) -> None:
    machines = {one.machine for one in members if one.standing == "verified"} - {None}
    if len(machines) > 1:
        raise ValueError(f"a group is ranked on one machine, not on {', '.join(sorted(map(str, machines)))}")


@dataclass(frozen=True, slots=True)
class _Result:
    """Spreads what kernels earned over members."""

    members: Sequence[Member]
    places: Sequence[Sequence[int]]
    basis: Basis | None

    def with_parts(self, parts: dict[str, Floats], incumbent: float | None = None) -> GroupRewards:
        """Every member earns what its kernel does."""
        n = len(self.members)
        own: list[dict[str, float]] = [{} for _ in range(n)]
        for kernel, places in enumerate(self.places):
            for index in places:
                own[index] = {name: float(part[kernel]) for name, part in parts.items()}
        rewards = np.array([sum(each.values()) for each in own], dtype=np.float64)
        return GroupRewards(
            rewards, self._counted(), tuple(own), self._gates(), self._copies(), self.basis, incumbent=incumbent
        )

    def skipped(self, why: str) -> GroupRewards:
        """Nobody earns anything."""
        n = len(self.members)
        empty: tuple[dict[str, float], ...] = tuple({} for _ in range(n))
        return GroupRewards(np.zeros(n), self._counted(), empty, self._gates(), self._copies(), self.basis, why)

    def _counted(self) -> NDArray[np.bool_]:
        found = np.zeros(len(self.members), dtype=bool)
        found[[index for own in self.places for index in own]] = True
        return found

    def _gates(self) -> tuple[str, ...]:
        counted = self._counted()
        return tuple(
            one.gate if one.standing == "absent" or counted[i] else "no_cost" for i, one in enumerate(self.members)
        )

    def _copies(self) -> tuple[int, ...]:
        found = [0] * len(self.members)
        for own in self.places:
            for index in own:
                found[index] = len(own)
        return tuple(found)
