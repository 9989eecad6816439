"""`warpsmith evaluate POLICY SUITE`: a policy beside others on the same problems, at equal budgets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpsmith.agents.registry import crew_of, make_policy
from warpsmith.app.arms import words
from warpsmith.app.arms.against import candidates_in, judged, named
from warpsmith.app.arms.folder import Comparison, ComparisonFolder
from warpsmith.app.arms.scores import Search, scores, searches_of
from warpsmith.app.display import Display
from warpsmith.app.suite.command import run_bench
from warpsmith.app.suite.folder import read_manifest, read_rows
from warpsmith.app.suite.problems import find_problems, parse_choice
from warpsmith.app.suite.records import SuiteProblem
from warpsmith.app.suite.settings import SuiteSettings
from warpsmith.kernels.errors import UserError
from warpsmith.tools.runs.store import utc_now

COMPLETE, BUDGET_ENDED, INTERRUPTED = 0, 3, 130
_RENEWABLE = ("workers", "jobs", "baselines")
"""What every call may say anew; it changes no result."""
_SHARES = (0.25, 0.5, 1.0)
"""Of the budget: where the best is looked at unless `--at` says otherwise."""


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """The command's flags."""

    policy: str
    suite: tuple[str, ...]
    versus: tuple[str, ...] = ()
    against: tuple[Path, ...] = ()
    seeds: tuple[int, ...] = (0,)
    budget: int = 32
    at: tuple[int, ...] = ()
    minutes: float | None = None
    """Wall clock of this call."""
    resume: Path | None = None
    out: Path = Path("runs")
    level: str | None = None
    ids: str | None = None
    filters: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    """`device`, `arch`, `workers`, `jobs`, `gpus`, `verdicts`, `baselines`: as `bench` takes them."""
    given: frozenset[str] = frozenset()
    """Names of the options that the command line gives."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Policies, each once."""
        return tuple(dict.fromkeys((self.policy, *self.versus)))


def run_comparison(settings: ComparisonSettings, display: Display) -> int:
    """Runs every arm with every seed, goes on where an earlier call stopped, and shows the scores. 0 where all of them
    ended, 3 where the minutes did."""
    what = _wanted(settings)
    problems = _problems(what)
    others = [(name, candidates_in(path, problems)) for name, path in named(what.against, what.arms).items()]
    # Nothing is made before everything that was named is known to be there.
    folder = ComparisonFolder(settings.resume) if settings.resume else ComparisonFolder.create(settings.out, what)
    began, code = time.monotonic(), COMPLETE
    for seed in what.seeds:
        for arm in what.arms:
            if code == COMPLETE:
                code = _arm(settings, folder, what, arm, seed, began, display)
    searches = [one for arm in what.arms for one in _searches(folder, what, arm)]
    ends: dict[str, dict[str, str]] = {}
    for name, candidates in others if code == COMPLETE else []:
        how = {"device": what.config.get("device", "auto"), "arch": what.config.get("arch"), "mode": "eval"}
        for search, status in judged(name, candidates, problems, how, display):
            searches.append(search)
            ends.setdefault(name, {})[search.key] = status
    at = settings.at or tuple(sorted({max(1, round(share * what.budget)) for share in _SHARES}))
    document = words.document(
        folder, what, scores(searches, at), ends, problems=len(problems), complete=code == COMPLETE
    )
    display.result(document, words.as_text(document, folder))
    return code


def _wanted(settings: ComparisonSettings) -> Comparison:
    """What is compared: what a comparison that goes on says, or the flags. UserError for a policy that there is not."""
    if settings.resume is not None:
        what = ComparisonFolder(settings.resume).read()
        if settings.policy != what.arms[0]:
            raise UserError(f"{settings.resume} compares {what.arms[0]}, not {settings.policy}: name that policy")
        _refuse_other(settings, what, settings.resume)
        anew = {name: settings.config.get(name) for name in _RENEWABLE if name in settings.given}
        against = _resolved(settings.against) if settings.against else what.against
        return what.model_copy(update={"config": what.config | anew, "against": against})
    for arm in settings.arms:
        # One that asks a model is made within a run, which has the means for it.
        if crew_of(arm) is None:
            make_policy(arm)
    chosen = {"level": settings.level, "ids": settings.ids, "filters": list(settings.filters)}
    return Comparison(
        created=utc_now(), suite=settings.suite, arms=settings.arms, seeds=settings.seeds, budget=settings.budget,
        config={**settings.config, **chosen}, against=_resolved(settings.against),
    )  # fmt: skip


def _resolved(folders: Sequence[Path]) -> tuple[str, ...]:
    """Paths that still lead there from another folder."""
    return tuple(str(path.resolve()) for path in folders)


def _refuse_other(settings: ComparisonSettings, what: Comparison, folder: Path) -> None:
    """UserError where the command line contradicts a comparison that goes on; it names the first such option."""
    kept = {
        "suite": what.suite, "versus": what.arms[1:], "seeds": what.seeds, "budget": what.budget,
        "out": folder.resolve().parent, **what.config,
    }  # fmt: skip
    now = {
        "suite": settings.suite, "versus": settings.arms[1:], "seeds": settings.seeds, "budget": settings.budget,
        "out": settings.out.resolve(), "level": settings.level, "ids": settings.ids, **settings.config,
    }  # fmt: skip
    names = sorted(
        ("seeds" if name == "seed" else name for name in settings.given & {*kept, "seed"}), key=list(now).index
    )
    for name in names:
        if name not in _RENEWABLE and now[name] != kept.get(name):
            shown = "SUITE" if name == "suite" else f"--{name}"
            raise UserError(
                f"{folder} was begun otherwise: {shown} {_said(now[name])} is given, the comparison has "
                f"{_said(kept.get(name))}. Leave this out to go on, or leave --resume out to start a new one"
            )


def _said(value: Any) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def _problems(what: Comparison) -> tuple[SuiteProblem, ...]:
    config = what.config
    return find_problems(what.suite, parse_choice(config["level"], config["ids"], config["filters"]))


def _arm(
    settings: ComparisonSettings, folder: ComparisonFolder, what: Comparison, arm: str, seed: int, began: float,
    display: Display,
) -> int:  # fmt: skip
    """One suite run, or the rest of it."""
    left = None if settings.minutes is None else settings.minutes - (time.monotonic() - began) / 60
    if left is not None and left <= 0:
        return BUDGET_ENDED
    begun = folder.begun(arm, seed)
    if begun is not None and _is_complete(begun):
        return COMPLETE
    display.phase(f"{arm}, seed {seed}")
    config = dict(what.config)
    renewed = {name: config[name] for name in ("gpus", "workers", "jobs", "baselines") if config.get(name)}
    bench = SuiteSettings(
        targets=what.suite, policy=arm, budget=what.budget, seed=seed, out=folder.home(arm, seed), minutes=left,
        resume=begun, **(renewed if begun is not None else _suite_options(config)),
        given=frozenset({"minutes", *renewed}) if begun is not None else frozenset(),
    )  # fmt: skip
    ended = run_bench(bench, Arm(display))
    if ended in (INTERRUPTED, 128 + 15):
        return ended
    begun = folder.begun(arm, seed)
    return COMPLETE if begun is not None and _is_complete(begun) else BUDGET_ENDED


def _suite_options(config: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in config.items() if value is not None}
    for name in ("filters", "gpus"):
        plain[name] = tuple(plain.get(name) or ())
    if plain.get("baselines"):
        plain["baselines"] = Path(plain["baselines"])
    return plain


def _is_complete(suite: Path) -> bool:
    return {problem.key for problem in read_manifest(suite).problems} <= set(read_rows(suite))


def _searches(folder: ComparisonFolder, what: Comparison, arm: str) -> list[Search]:
    found = []
    for seed in what.seeds:
        begun = folder.begun(arm, seed)
        found += searches_of(begun, arm, seed) if begun is not None else []
    return found


class Arm:
    """Shows a suite run as a part of the whole: its rows, and not its result."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        """The display belongs to the whole."""

    def phase(self, text: str) -> None:
        """Passed on."""
        self._display.phase(text)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Passed on."""
        self._display.event(kind, data)

    def note(self, text: str) -> None:
        """Passed on."""
        self._display.note(text)

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """Left to the whole."""
