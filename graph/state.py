"""What a search remembers between supersteps: ids and scalars only; bytes lie in the run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from warpsmith.agents.freeform import FreeformTask
from warpsmith.agents.policy import Kind, Policy, Trial, trial_of
from warpsmith.agents.space import Grid, Limits, SearchSpace
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Diagnostic
from warpsmith.kernels.slots import Values
from warpsmith.tools.null import EvaluatorLike
from warpsmith.tools.runs.store import RunStore

Next = Literal["plan", "propose", "write", "evaluate", "decide", "confirm", "finish"]
Stop = Literal["budget", "minutes", "plateau", "exhausted", "cap", "server"]
"""`cap`: a cap on what models may cost; `server`: the models' server cannot be used any more."""

PLANNING = -1
"""`SearchState.spec` while families are compared."""
WHOLE = -2
"""`TrialRef.spec` of a free-form candidate; `SearchState.spec` where no family covers the problem."""


class TrialRef(TypedDict):
    """One proposed combination; its outcome is found in the store under `candidate`."""

    candidate: str
    spec: int
    point: str
    """Indices of the slot values, e.g. `0.3.1`: names the values even where two combinations give one
    text."""
    code: NotRequired[str]
    """Names of the code slots that were edited, joined by commas; their texts lie in the stored candidate."""
    kind: Kind
    role: str | None
    base: str | None
    step: int


class SearchState(TypedDict, total=False):
    """The graph's channels."""

    spec: int
    """Index of the family that is searched, or `PLANNING`, or `WHOLE`."""
    stayed: int
    """Evaluations since that family was taken up."""
    step: int
    """Number of the proposal round; with the seed it fixes the random numbers."""
    kind: Kind
    role: str | None
    patient: str | None
    """Repair rounds: candidate id of the trial to mend."""
    count: int
    handed: bool
    """Whether the region was given to free-form: by the start, or by the planner."""
    idle: int
    """Proposal rounds in a row that brought no new candidate."""
    planned_at: NotRequired[int]
    """Evaluations when a planner that is a model was last asked."""
    unwritten: int
    """The same of rounds in which whole candidates were asked for."""
    pending: list[TrialRef]
    trials: list[TrialRef]
    incumbent: str | None
    confirmed: list[str]
    """Candidate ids that got a full verdict."""
    elapsed_s: float
    next: Next
    stop: Stop | None
    gated: bool
    """Whether proposals pass `approve` before they are evaluated."""
    planned: bool
    """Whether a person approved the plan."""
    pins: Values
    limits: Limits
    notes: list[str]
    """What the person said, oldest first."""
    rejected: list[TrialRef]
    """Proposals that the person refused."""
    root: str | None
    """Candidate id that the person checked out."""
    root_step: int
    branch: str
    turns: list[Turn]
    """What can be undone, oldest first."""


class Turn(TypedDict):
    """One step that a person can take back."""

    checkpoint: str
    """Where the search stood before it."""
    text: str


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How one search is run."""

    policy: str = "builtin"
    budget: int = 64
    """Screened candidates."""
    full_verdicts: int = 4
    """Full verdicts at the end; the last is kept for the naive kernel in case nothing else passes."""
    minutes: float | None = None
    """Wall time, summed over resumed parts."""
    seed: int = 0
    batch: int = 4
    """Candidates a round: they compile side by side."""
    patience: int | None = None
    """Evaluations without progress that end the search; None: the whole budget is used."""
    start: Values = field(default_factory=dict)
    """Slot values laid over the first family's naive kernel for the first evaluation."""
    start_candidate: str | None = None
    """Id of a stored whole candidate that is judged first and is every other's ancestor."""
    resume: bool = False


Emit = Callable[[str, Mapping[str, Any]], None]


def no_diagnostics(candidate: Candidate) -> tuple[Diagnostic, ...]:
    """For searches without a compiler."""
    return ()


@dataclass(frozen=True, slots=True)
class Means:
    """What a search may work with beyond its families."""

    policy: Policy | None = None
    """Stands for the one that the settings name."""
    task: FreeformTask | None = None
    """What whole candidates are written for; None: none are."""
    diagnostics: Callable[[Candidate], tuple[Diagnostic, ...]] = no_diagnostics
    """What the compiler said of a candidate."""


NOTHING_MORE = Means()


@dataclass(slots=True)
class Context:
    """What nodes work with; never checkpointed."""

    specs: tuple[KernelSpec, ...]
    spaces: tuple[SearchSpace, ...]
    policy: Policy
    evaluator: EvaluatorLike
    store: RunStore
    settings: SearchSettings
    emit: Emit
    clock: Callable[[], float]
    started: float
    """The clock when this process took the search up."""
    elapsed_before: float = 0.0
    """Seconds that earlier processes spent on it."""
    means: Means = NOTHING_MORE
    texts: dict[str, Values] = field(default_factory=dict)
    """Edited code slots by candidate, read from the store once."""
    asks: bool = False
    """Whether a person is there who approves proposals."""
    restricted: dict[str, SearchSpace] = field(default_factory=dict)
    """Spaces as pins and limits leave them, by the text of those."""

    def elapsed(self) -> float:
        """Seconds spent on the search so far."""
        return self.elapsed_before + self.clock() - self.started

    def values(self, ref: TrialRef) -> Values:
        """The slot values of a trial, with the texts of edited code slots; UserError where the checkpoint belongs to
        other slots."""
        if ref["spec"] == WHOLE:
            return {}
        if ref["spec"] >= len(self.spaces):
            raise self._other_slots()
        grid = Grid(self.spaces[ref["spec"]])
        point = tuple(int(part) for part in ref["point"].split(".") if part)
        if len(point) != len(grid.slots) or any(i >= n for i, n in zip(point, grid.sizes, strict=True)):
            raise self._other_slots()
        return grid.values(point) | self._code(ref)

    def _other_slots(self) -> UserError:
        return UserError(
            f"checkpoints.db in {self.store.folder} was written for other slots: start a new run, or "
            "remove the file to search anew over the results that exist"
        )

    def _code(self, ref: TrialRef) -> Values:
        names = ref.get("code", "")
        if not names:
            return {}
        if ref["candidate"] not in self.texts:
            held = self.store.get_candidate(ref["candidate"]).values
            self.texts[ref["candidate"]] = {name: held[name] for name in names.split(",") if name in held}
        return self.texts[ref["candidate"]]

    def history(self, trials: list[TrialRef], spec: int) -> tuple[Trial, ...]:
        """The trials of one family with their recorded outcomes, in order."""
        found = []
        for ref in trials:
            outcome = self.store.outcome(ref["candidate"]) if ref["spec"] == spec else None
            if outcome is not None:
                made = trial_of(
                    outcome,
                    self.values(ref),
                    ref["kind"],
                    role=ref["role"],
                    base=ref["base"],
                    step=ref["step"],
                )
                found.append(made)
        return tuple(found)


def spent(store: RunStore, trials: list[TrialRef], *, gated: bool) -> int:
    """Evaluations that count against the budget. Where turns can be taken back and branches left (`gated`), all that
    the run has screened: what was measured stays measured."""
    counted = {ref["candidate"] for ref in trials}
    if gated:
        counted |= {one.candidate for one in store.outcomes() if store.outcome(one.candidate, "screen") is not None}
    return len(counted)


def evaluations(trials: list[TrialRef]) -> int:
    """Distinct candidates: combinations that give the same text are evaluated once."""
    return len({ref["candidate"] for ref in trials})
