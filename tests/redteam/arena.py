"""What an attack is, and how a set of them is put through the judge: the one way in that candidates have."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from warpsmith.kernels.assemble import apply_edits
from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.families.registry import family_named
from warpsmith.kernels.family import KernelSpec, spec_for
from warpsmith.kernels.plan import plan as plan_of
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.kernels.slots import Decision, Role, SlotEdit
from warpsmith.tools.compile import Compiler
from warpsmith.tools.evaluate import Evaluator, Limits
from warpsmith.tools.plan_file import SCRATCH_CPU, check_plan, load_candidate
from warpsmith.tools.target import Target
from warpsmith.tools.verification.hidden_shapes import BUDGETS, HiddenShapes

ATTACKS = Path(__file__).parent / "attacks"
ARCH = "sm_90"
LIMITS = Limits(prepare_s=120.0, verify_s=60.0, time_s=120.0)

REFUSED = "refused"
"""Not a status: the candidate was turned down before it became one (its folder, its plan, its slot text)."""

BROKEN = "broken"
"""Not a status either: the door itself raised something that is no message to a user."""

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


@dataclass(frozen=True, slots=True)
class Task:
    """A problem file and an honest candidate for it."""

    name: str
    text: str
    honest: Entry
    mode: str = "eval"


@dataclass(frozen=True, slots=True)
class Folder:
    """A candidate as strangers hand it in: `kernel.cu` and `launch.json`, and whatever else `build` leaves there."""

    source: str
    plan: Mapping[str, Any] | str
    build: Callable[[Path], None] | None = None


@dataclass(frozen=True, slots=True)
class Slotted:
    """A template candidate with one slot edited, as a policy hands it in."""

    family: str
    role: Role
    slot: str
    text: str | int | bool
    """`{default}` stands for the text that the lowering wrote."""


Entry = Folder | Slotted


@dataclass(frozen=True, slots=True)
class Attack:
    """One way of fooling the judge. `caught` are the statuses that count as caught in the emulator; `kinds`, where
    given, narrows them to the causes that name the mechanism. `on_gpu` are the statuses on a device: None where no
    device sees the attack differently (text, folder) or where only the emulator can tell."""

    classes: tuple[str, ...]
    task: Task
    entry: Entry
    caught: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    says: str = ""
    """A pattern that the message must hold."""
    control: Entry | None = None
    """The honest neighbour where the task's own candidate does not come near the mechanism."""
    on_emulator: bool = True
    on_gpu: tuple[str, ...] | None = None
    name: str = field(default="", compare=False)

    @property
    def honest(self) -> Entry:
        """What must pass beside it."""
        return self.control if self.control is not None else self.task.honest


@dataclass(frozen=True, slots=True)
class Finding:
    """What the judge said."""

    status: str
    kind: str | None
    message: str
    outcome: Outcome | None = None

    @property
    def verdict(self) -> str:
        """The status; where library operators took part, with the label that says so (`ok:hybrid`)."""
        provenance = self.outcome.provenance if self.outcome is not None else None
        return self.status if provenance in (None, "own") else f"{self.status}:{provenance}"

    def __str__(self) -> str:
        return f"{self.verdict}/{self.kind}: {self.message[:300]}"


def step(kernel: str, args: Sequence[Any], *, grid: Any = 1, block: Any = 1, **more: Any) -> dict[str, Any]:
    """A launch; grid and block may be numbers."""
    return {"kernel": kernel, "grid": _three(grid), "block": _three(block), "args": list(args), **more}


def launch(*steps: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """A launch plan."""
    return {"schema_version": 1, "steps": list(steps), **parts}


def _three(size: Any) -> list[int]:
    return [size, 1, 1] if isinstance(size, int) else list(size)


@cache
def attacks() -> tuple[Attack, ...]:
    """Every attack of the folder, by file name."""
    from dataclasses import replace

    return tuple(replace(module(path).ATTACK, name=path.stem) for path in sorted(ATTACKS.glob("*.py")))


@cache
def module(path: Path) -> ModuleType:
    """One file of attacks."""
    spec = importlib.util.spec_from_file_location(f"redteam_attack_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def written(task: Task, folder: Path) -> Problem:
    """The task's problem, loaded from a file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task.name}.py"
    path.write_text(HEAD + task.text)
    return load_problem(str(path), mode="train" if task.mode == "train" else "eval")


def candidate_of(entry: Entry, problem: Problem, folder: Path) -> Candidate:
    """The candidate, through the checks of the door it comes in by. UserError where a door refuses it."""
    return _from_slots(entry, problem) if isinstance(entry, Slotted) else _from_folder(entry, problem, folder)


def _from_folder(entry: Folder, problem: Problem, folder: Path) -> Candidate:
    folder.mkdir(parents=True)
    (folder / "kernel.cu").write_text(entry.source)
    text = entry.plan if isinstance(entry.plan, str) else json.dumps(entry.plan)
    (folder / "launch.json").write_text(text)
    if entry.build is not None:
        entry.build(folder)
    candidate = load_candidate(folder)
    check_plan(candidate.plan, problem, folder / "launch.json", scratch_bytes=SCRATCH_CPU)
    return candidate


def spec_of(problem: Problem, family: str) -> KernelSpec:
    """The search space of one family for a problem."""
    return spec_for(family_named(family), plan_of(capture(problem)).region, model_for(ARCH))


def _from_slots(entry: Slotted, problem: Problem) -> Candidate:
    spec = spec_of(problem, entry.family)
    values = spec.sensible()
    text = entry.text
    if isinstance(text, str):
        text = text.replace("{default}", str(values.get(entry.slot, "")))
    decision = Decision(entry.role, (SlotEdit(entry.slot, text),))
    edited = apply_edits(spec, values, [decision])
    if edited.refused:
        raise UserError(edited.refused[0].reason)
    return spec.emit(edited.values)


def judged(
    task: Task, entries: Mapping[str, Entry], folder: Path, compiler: Compiler, target: Target
) -> dict[str, Finding]:
    """What the judge says of each entry for one task; one evaluator, one batch."""
    problem = written(task, folder)
    found: dict[str, Finding] = {}
    fit: dict[str, Candidate] = {}
    for name, entry in entries.items():
        try:
            fit[name] = candidate_of(entry, problem, folder / name)
        except UserError as error:
            found[name] = Finding(REFUSED, None, str(error))
        except Exception as error:
            found[name] = Finding(BROKEN, type(error).__name__, str(error)[:300])
    families = {entry.family for entry in entries.values() if isinstance(entry, Slotted)}
    specs = {family: spec_of(problem, family) for family in families}
    said = judged_candidates(problem, list(fit.values()), compiler, target, specs)
    return found | dict(zip(fit, said, strict=True))


def judged_candidates(
    problem: Problem,
    candidates: Sequence[Candidate],
    compiler: Compiler,
    target: Target,
    specs: Mapping[str, KernelSpec],
) -> list[Finding]:
    """What the judge says of each candidate; those of a template in `specs` are judged at hidden shapes as well."""
    hidden = hidden_shapes(problem, specs, target) if specs else None
    found = []
    for outcome in asyncio.run(_evaluate(problem, candidates, compiler, target, hidden)):
        failure = outcome.failure
        kind, message = (failure.kind, failure.message) if failure else (None, "")
        found.append(Finding(outcome.status, kind, message, outcome))
    return found


def hidden_shapes(problem: Problem, specs: Mapping[str, KernelSpec], target: Target) -> HiddenShapes:
    """What full verdicts on template candidates hold at, as the commands set it up."""
    return HiddenShapes(problem, capture(problem), specs, BUDGETS[target.kind])


async def _evaluate(
    problem: Problem, candidates: Sequence[Candidate], compiler: Compiler, target: Target, hidden: HiddenShapes | None
) -> list[Outcome]:
    async with Evaluator(
        problem.ref, problem.hash, target, compiler, limits=LIMITS, baselines=("eager",), hidden=hidden
    ) as evaluator:
        return await evaluator.evaluate(candidates, level="full")


def complaint(attack: Attack, finding: Finding, *, gpu: bool = False) -> str | None:
    """Why a finding does not count as caught, or None."""
    wanted = attack.on_gpu if gpu and attack.on_gpu is not None else attack.caught
    if finding.verdict not in wanted and finding.verdict.removesuffix(":hybrid") not in set(wanted) - {"ok"}:
        return f"{attack.name}: {finding} instead of {' or '.join(wanted)}"
    if attack.kinds and not gpu and finding.kind not in attack.kinds:
        return f"{attack.name}: {finding} instead of the kind {' or '.join(attack.kinds)}"
    if attack.says and not re.search(attack.says, finding.message):
        return f"{attack.name}: {finding} does not say {attack.says!r}"
    return None
