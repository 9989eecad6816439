"""Auxiliary rewards: off, a tie-break or less than half a place; and kernels that would game one, in the emulator."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from emulator.kit import aligned, cuda, good, run
from rewards.groups import EXACT, drawn, group

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Outcome
from warpsmith.rl import rewards as package
from warpsmith.rl.rewards.auxiliary import TERMS, Term, standings
from warpsmith.rl.rewards.conflicts import TIME, conflicts
from warpsmith.rl.rewards.gates import Member, member_of
from warpsmith.rl.rewards.group import group_rewards
from warpsmith.rl.rewards.settings import AuxiliaryMode, RewardSettings, settings_of
from warpsmith.tools.profiling.counters import standard

MODES: tuple[AuxiliaryMode, ...] = ("tie_break", "weighted")
BY_NAME = {(term.role, term.name): term for term in TERMS}
SHARED_USE = BY_NAME["memory", "shared_use"]


def with_counters(members: list[Member], rng: np.random.Generator) -> list[Member]:
    names = sorted({term.counter for term in TERMS})
    return [replace(one, counters={name: float(rng.integers(0, 5)) for name in names}) for one in members]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("mode", MODES)
def test_who_wins_more_by_time_always_earns_more(mode: AuxiliaryMode, seed: int) -> None:
    rng = np.random.default_rng(seed)
    settings = RewardSettings(margin=0.0, auxiliary=mode, terms=TERMS, strength=0.99)
    members = with_counters(group(drawn(rng, int(rng.integers(2, 12)))), rng)
    plain, found = group_rewards(members, EXACT).rewards, group_rewards(members, settings)
    assert np.abs(found.rewards).max() <= 1.0
    assert found.rewards.mean() == pytest.approx(0.0, abs=1e-12)
    for i, j in zip(*np.nonzero(plain[:, None] > plain[None, :] + 1e-12), strict=True):
        assert found.rewards[i] > found.rewards[j]
    for part, reward in zip(found.parts, found.rewards, strict=True):
        assert set(part) == {"rank", *(term.part for term in TERMS)}
        assert sum(part.values()) == pytest.approx(reward)


def test_a_tie_break_says_nothing_where_there_is_no_tie() -> None:
    rng = np.random.default_rng(1)
    members = with_counters(group([1.0, 2.0, 2.0, 3.0, None]), rng)
    settings = RewardSettings(margin=0.0, auxiliary="tie_break", terms=TERMS)
    parts = group_rewards(members, settings).parts
    told = [any(value for name, value in part.items() if name != "rank") for part in parts]
    assert told == [False, True, True, False, False]


def test_auxiliary_terms_are_off_unless_they_are_asked_for() -> None:
    members = with_counters(group([1.0, 2.0]), np.random.default_rng(0))
    silent = RewardSettings(margin=0.0, terms=TERMS)
    np.testing.assert_array_equal(group_rewards(members, silent).rewards, group_rewards(members, EXACT).rewards)


def test_incorrect_members_get_no_auxiliary_reward() -> None:
    members = with_counters(group([None, 2.0, None]), np.random.default_rng(0))
    settings = RewardSettings(margin=0.0, auxiliary="weighted", terms=TERMS)
    found = group_rewards(members, settings)
    assert found.rewards[0] == found.rewards[2] == min(found.rewards)


def test_wrong_terms_are_refused() -> None:
    with pytest.raises(UserError, match="no counter 'speed'"):
        Term("memory", "x", "speed", more=True)
    with pytest.raises(UserError, match="no role 'driver'"):
        Term("driver", "x", "occupancy", more=True)
    with pytest.raises(UserError, match="below 1"):
        RewardSettings(strength=1.0)


def test_settings_come_from_a_table_of_a_configuration_file() -> None:
    text = 'scheme = "share"\ntop = 0.5\nauxiliary = "tie_break"\nterms = ["memory.shared_use", "config.occupancy"]'
    found = settings_of(tomllib.loads(text))
    assert (found.scheme, found.top, found.bottom, found.margin) == ("share", 0.5, 0.25, 0.03)
    assert found.terms == (SHARED_USE, BY_NAME["config", "occupancy"])
    assert settings_of({}) == RewardSettings()
    for table, said in (
        ({"margins": 1}, "no 'margins': choose among screened, margin"),
        ({"terms": ["memory.speed"]}, "no term 'memory.speed': choose among config.occupancy"),
        ({"margin": "wide"}, "margin: "), ({"scheme": "best"}, "scheme: "), ({"top": 0.9, "bottom": 0.3}, "overlap"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            settings_of(table)


def test_rewards_and_credit_need_no_torch() -> None:
    names = [f"warpsmith.rl.rewards.{path.stem}" for path in Path(package.__path__[0]).glob("[a-z]*.py")]
    every = ", ".join([*names, "warpsmith.rl.credit", "warpsmith.rl.records"])
    code = f"import sys, {every}; sys.exit('torch' in sys.modules)"
    assert len(names) >= 9
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# kernels full of bank conflicts, with the emulator's counters

TILES = {"padded": 33, "two-way": 34, "four-way": 36, "unpadded": 32, "wide and unpadded": 64}
TRANSPOSE = """extern "C" __global__ void k(const float* x, float* y, int n) {{
  __shared__ float s[32][{pitch}];
  int c = blockIdx.x * 32, r = blockIdx.y * 32;
  for (int k = threadIdx.y; k < 32; k += 8) s[k][threadIdx.x] = x[(r + k) * n + c + threadIdx.x];
  __syncthreads();
  for (int k = threadIdx.y; k < 32; k += 8) y[(c + k) * n + r + threadIdx.x] = s[threadIdx.x][k];
}}"""
DIRECT = """extern "C" __global__ void k(const float* x, float* y, int n) {
  int c = blockIdx.x * 32, r = blockIdx.y * 32;
  for (int k = threadIdx.y; k < 32; k += 8) y[(c + threadIdx.x) * n + r + k] = x[(r + k) * n + c + threadIdx.x];
}"""


@cache
def transposes() -> dict[str, tuple[Outcome, float]]:
    """Name -> verified transposes of a 64 x 64 matrix with their counters, and microseconds by what they move: a wave
    of shared memory and a sector of global memory take a nanosecond each."""
    sources = {name: TRANSPOSE.format(pitch=pitch) for name, pitch in TILES.items()} | {"direct": DIRECT}
    found = {}
    for name, source in sources.items():
        x = aligned(np.arange(64 * 64).reshape(64, 64), np.float32)
        y = aligned(np.zeros((64, 64)), np.float32)
        raw = good(run(cuda(source), "k", (2, 2), (32, 8), [x, y, 64])).counters
        assert np.array_equal(y, x.T)
        shared = 32 * TILES.get(name, 0) * 4
        moved = ("shared_load_wavefronts", "shared_store_wavefronts", "global_load_sectors", "global_store_sectors")
        counters = standard("emulated", {"k": raw}, {"k": {"shared_bytes": float(shared)}})
        outcome = Outcome(
            candidate=name, problem_hash="p", status="ok", provenance="own", verified_on="emulator:sm_90",
            counters=counters,
        )  # fmt: skip
        found[name] = outcome, sum(raw.get(one, 0.0) for one in moved) / 1e3
    return found


def members(*, tied: bool = False) -> dict[str, Member]:
    """The same as members; with `tied` their times cannot be told apart."""
    made = {}
    for name, (outcome, us) in transposes().items():
        made[name] = member_of(outcome.model_copy(update={"estimated_us": 1.0 if tied else us}), RewardSettings())
    return made


def learned(pay: Callable[[list[Member]], np.ndarray], names: list[str], own: Mapping[str, Member]) -> dict[str, float]:
    """Probabilities of a softmax policy over the kernels after 300 groups of 8 draws, by policy gradient."""
    rng, logits = np.random.default_rng(0), np.zeros(len(names))
    for _ in range(300):
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        drawn = rng.choice(len(names), 8, p=chances)
        rewards = pay([own[names[i]] for i in drawn])
        for place, reward in zip(drawn, rewards, strict=True):
            gradient = -chances
            gradient[place] += 1.0
            logits = logits + 0.1 * reward * gradient
    chances = np.exp(logits - logits.max())
    return dict(zip(names, chances / chances.sum(), strict=True))


def test_the_emulator_tells_conflicts_and_the_wide_tile_uses_most_shared_memory() -> None:
    own = members()
    assert own["padded"].counters["bank_conflicts"] == 0.0
    assert own["unpadded"].counters["bank_conflicts"] > 90.0
    assert own["wide and unpadded"].counters["bank_conflicts"] > 90.0
    assert max(own, key=lambda name: own[name].counters["shared_bytes"]) == "wide and unpadded"
    assert "bank_conflicts" not in own["direct"].counters
    assert own["direct"].counters["shared_bytes"] == 0.0


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_reward_for_shared_memory_does_not_make_a_policy_prefer_bank_conflicts(
    mode: AuxiliaryMode, tied: bool
) -> None:
    own = members(tied=tied)
    names = list(own)
    settings = RewardSettings(auxiliary=mode, terms=(SHARED_USE,), strength=0.99)
    found = learned(lambda group: group_rewards(group, settings).rewards, names, own)
    start = 1 / len(names)
    full = [name for name in names if own[name].counters.get("bank_conflicts", 0.0) > 5.0]
    assert len(full) == 4
    assert all(found[name] < start / 2 for name in full)
    assert found["padded"] == max(found.values()) > 0.5


def test_the_same_policy_does_prefer_them_where_the_term_is_simply_added() -> None:
    """So the test above can fail: it is the guard and the bound that keep the policy straight."""
    own = members()

    def added(group: list[Member]) -> np.ndarray:
        plain = group_rewards(group, RewardSettings()).rewards
        return plain + 2.0 * standings(replace(SHARED_USE, guards=()), [one.counters for one in group])

    found = learned(added, list(own), own)
    assert max(found, key=lambda name: found[name]) == "wide and unpadded"


def test_conflicting_wishes_of_two_roles_are_reported() -> None:
    own = members()
    greedy = replace(SHARED_USE, guards=())
    by_role = BY_NAME["reduction", "bank_conflicts"]
    names = ["padded", "two-way", "four-way", "wide and unpadded"]
    groups = [[own[name].counters for name in names]] * 3
    (found,) = conflicts([greedy, by_role], groups)
    assert (found.first, found.second) == ("auxiliary.memory.shared_use", "auxiliary.reduction.bank_conflicts")
    assert found.correlation == pytest.approx(-1.0)
    assert found.members == 12
    assert "pull apart" in found.text
    # What the guard stops is no wish: nothing pulls apart any more.
    assert conflicts([SHARED_USE, by_role], groups) == []
    # Against the time, which bank conflicts cost.
    ranks = [group_rewards([own[name] for name in names], RewardSettings()).rewards] * 3
    (against,) = conflicts([greedy], groups, ranks)
    assert against.second == TIME
    assert conflicts([by_role], groups, ranks) == []


def test_nothing_is_said_of_few_members_or_of_one_role() -> None:
    own = members()
    greedy = replace(SHARED_USE, guards=())
    mine = replace(BY_NAME["reduction", "bank_conflicts"], role="memory")
    counters = [one.counters for one in own.values() if "bank_conflicts" in one.counters]
    assert conflicts([greedy, BY_NAME["reduction", "bank_conflicts"]], [counters]) == []
    assert conflicts([greedy, mine], [counters] * 5) == []
