"""Trajectories from run folders, with nothing in them that is nobody's business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from warpsmith.agents.llm.records import ReplyRef
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.records import Event, Outcome, RunManifest
from warpsmith.rl.records import Decision, Mode, Trajectory, identity_of
from warpsmith.rl.rewards.gates import absolute, member_of
from warpsmith.rl.rewards.settings import RewardSettings
from warpsmith.rl.trajectories.folders import mode_of, run_folders
from warpsmith.rl.trajectories.scrub import Scrubber
from warpsmith.rl.trajectories.story import PLANNER, WRITER, Told, proposals
from warpsmith.rl.trajectories.texts import exchange
from warpsmith.rl.trajectories.timing import CANDIDATE, median_interval, samples_of
from warpsmith.tools.runs.store import RunStore

_CLASSES: Mapping[str, str] = {
    "composer": "composite", "gemm": "matmul", "scan": "scan", "scan_column": "scan", "window": "window",
    "row": "reduction", "column": "reduction", "global_reduce": "reduction", "slab": "reduction",
    "row_pipeline": "reduction",
    "layout_reduce": "reduction", "layout": "layout", "map": "pointwise",
}  # fmt: skip
"""Family -> what kind of operator it is for; the first one that a problem has says what the problem is."""


def trajectories(where: Path, scrubber: Scrubber) -> Iterator[Trajectory]:
    """Of every run in a folder, in the order of the runs' names and of the proposals. UserError where there is no run,
    or one that cannot be read."""
    for folder in run_folders(where):
        yield from trajectories_of(folder, scrubber)


def trajectories_of(folder: Path, scrubber: Scrubber) -> Iterator[Trajectory]:
    """Of one run: one for every candidate that was proposed and evaluated."""
    with RunStore.open(folder, writable=False) as store:
        reader = _Reader.of(store, scrubber)
        told, at = proposals(_events(store))
        for one in told:
            outcome = store.outcome(one.candidate, "full") or store.outcome(one.candidate)
            if outcome is not None:
                yield reader.trajectory(one, outcome, at[one.candidate])


def _events(store: RunStore) -> list[Event]:
    try:
        return store.events()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["msg"]
        raise UserError(
            f"{store.folder / 'events.jsonl'} has a line that is no event of this version ({first}): leave this run out"
        ) from error


def operator_class(families: Mapping[str, Any]) -> str:
    """What kind of operator a problem is, by the families that can compute it; `freeform` where none can."""
    plain = {name.partition("+")[0] for name in families}
    return next((kind for family, kind in _CLASSES.items() if family in plain), "unknown") if plain else "freeform"


@dataclass(frozen=True, slots=True)
class _Reader:
    store: RunStore
    scrubber: Scrubber
    manifest: RunManifest
    mode: Mode
    owners: Mapping[str, Mapping[str, str]]
    """Family -> slot -> owner."""

    @classmethod
    def of(cls, store: RunStore, scrubber: Scrubber) -> _Reader:
        """With what is the same for all trajectories of a run."""
        manifest = store.manifest()
        return cls(store, scrubber, manifest, mode_of(store.folder, manifest), _owners(manifest))

    def trajectory(self, told: Told, outcome: Outcome, at: str) -> Trajectory:
        """One candidate's."""
        manifest, space = self.manifest, self.manifest.config.get("space") or {}
        samples = samples_of(self.store, outcome)
        clean = Outcome.model_validate(self.scrubber.value(outcome.model_dump()))
        fields: dict[str, Any] = {
            "episode": self.scrubber.text(manifest.run_id), "mode": self.mode, "problem": manifest.problem_hash,
            "task": self.scrubber.text(Path(manifest.problem_path.partition(":")[0]).stem),
            "operators": list(space.get("operators") or []),
            "operator_class": operator_class(space.get("families") or {}),
            "device": outcome.verified_on or manifest.device, "arch": manifest.arch, "family": outcome.family,
            "kind": told.kind, "turn": told.turn, "role": told.role, "base": told.base, "candidate": told.candidate,
            "values": clean.slots, "owners": dict(self.owners.get(outcome.family) or {}),
            "decisions": [one.model_dump() for one in self._decisions(told, outcome)], "outcome": clean,
            "level": "screen" if outcome.status == "screened" else "full", "samples_us": samples,
            "interval_us": median_interval(samples.get(CANDIDATE, ())), "seed": manifest.seed, "at": at,
            "versions": dict(manifest.versions),
            "reward_parts": absolute(member_of(outcome, RewardSettings(), full=outcome.status != "screened")),
        }  # fmt: skip
        return Trajectory(id=identity_of(fields), **fields)

    def _decisions(self, told: Told, outcome: Outcome) -> list[Decision]:
        """In the order in which they were made: the plan first."""
        found: list[Decision] = []
        if told.plan is not None:
            ref = told.plan.replies[-1] if told.plan.replies else None
            found.append(self._decision(told, PLANNER, "plan", told.plan.choice, told.plan.why, ref))
        if told.opening:
            family = {"plan": outcome.family}
            return [self._decision(told, PLANNER, "plan", family, "", None)] if told.role == PLANNER else []
        if told.whole:
            ref = told.replies[WRITER][-1] if told.replies.get(WRITER) else None
            return [*found, self._decision(told, WRITER, told.kind, {}, told.why.get(WRITER, ""), ref)]
        for role in dict.fromkeys([*told.edits, *told.replies]):
            refs = told.replies.get(role)
            edits, why = told.edits.get(role, {}), told.why.get(role, "")
            found.append(self._decision(told, role, told.kind, edits, why, refs[-1] if refs else None))
        return found

    def _decision(
        self, told: Told, role: str, kind: str, slots: Mapping[str, Any], why: str, ref: ReplyRef | None
    ) -> Decision:
        said = exchange(self.store, ref, self.scrubber) if ref is not None else None
        common: dict[str, Any] = {
            "role": role, "turn": told.turn, "kind": kind, "slots": self.scrubber.value(dict(slots)),
            "why": self.scrubber.text(why),
        }  # fmt: skip
        if ref is None or said is None:
            policy = told.policy or str(self.manifest.config.get("policy") or "unknown")
            return Decision(
                **common, policy=self.scrubber.text(policy), policy_version=self._version(), seed=self.manifest.seed
            )
        return Decision(
            **common, policy=self.scrubber.text(ref.model), policy_version=said.version, sample=ref.sample,
            seed=said.seed, prompt_hash=said.prompt_hash, prompt=said.prompt, completion=said.completion,
            tokens=said.tokens, scrubbed=said.scrubbed, prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
        )  # fmt: skip

    def _version(self) -> str | None:
        """Of what ships with the package."""
        version, commit = self.manifest.versions.get("warpsmith"), self.manifest.commit
        if version is None or commit is None:
            return version
        return f"{version}+{commit[:12]}{'.dirty' if commit.endswith('-dirty') else ''}"


def _owners(manifest: RunManifest) -> dict[str, dict[str, str]]:
    families = (manifest.config.get("space") or {}).get("families") or {}
    return {
        family: {slot: str(facts.get("owner")) for slot, facts in (own.get("slots") or {}).items()}
        for family, own in families.items()
    }
