"""`collect` and `defaults`: from runs to a file of timings, and from that to the weights that Warpsmith comes with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.agents.slots.policy import SHIPPED
from warpsmith.agents.slots.specialist import ENDING, save
from warpsmith.app.wording import count
from warpsmith.kernels.capture import capture
from warpsmith.kernels.composite import AnyRegion
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import Problem
from warpsmith.kernels.records import RunManifest
from warpsmith.rl.slots.offline import OfflineSettings, by_family, left_out
from warpsmith.rl.slots.offline import defaults as trained
from warpsmith.rl.slots.records import Measured, Recorded, read_records, write_records
from warpsmith.rl.trajectories.folders import run_folders
from warpsmith.tools.export import problem_of
from warpsmith.tools.runs.store import RunStore, room_needed


def collect(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders with some below.")],
    to: Annotated[Path, typer.Option("--to", help="File of timings, .jsonl or .jsonl.xz; written anew.")],
) -> None:
    """Timings of runs on a GPU, with what their problems compute; the problems must be where they were."""
    regions: dict[str, AnyRegion] = {}
    measured: list[Measured] = []
    for folder in [run for where in runs for run in run_folders(where)]:
        store = RunStore.open(folder, writable=False, skip_broken=True)
        found = _of_run(store, store.manifest())
        regions |= found[0]
        measured += found[1]
    if not measured:
        raise UserError("these runs hold no time of a kernel that a template made: they need a GPU (--device gpu)")
    with room_needed(to, option="--to FILE"):
        write_records(to, regions, measured)
    typer.echo(f"{to}: {count(len(measured), 'timing')} of {count(len(regions), 'region')}")


def defaults(
    records: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Timings (docs/learning.md).")],
    to: Annotated[Path, typer.Option("--to", help="Folder of the specialists; equal names are replaced.")] = SHIPPED,
) -> None:
    """A specialist for each family and architecture, and how well they do on problems that they have not seen."""
    settings = OfflineSettings()
    groups: list[Recorded] = [one for file in records for one in read_records(file)]
    if not groups:
        raise UserError("no file has a space of which four candidates still exist: record anew")
    if not by_family(groups):
        raise UserError("no family has timings of two problems, so nothing tells what holds beyond one: record more")
    with room_needed(to, option="--to FOLDER"):
        to.mkdir(parents=True, exist_ok=True)
    for one in left_out(groups, settings):
        typer.echo(
            f"{one.family} without {one.problem}: rank correlation {one.spearman[1]:.2f}, prior {one.spearman[0]:.2f}; "
            f"first choice takes {one.first[1]:.2f} of the best time, prior {one.first[0]:.2f}"
        )
    devices = ", ".join(sorted({one.device for one in groups}))
    made: dict[str, Any] = {"algorithm": "preferences", "data": ", ".join(file.name for file in records),
                            "device": devices, "bias": settings.bias, "pairs": settings.pairs}  # fmt: skip
    for own, specialist in zip(by_family(groups), trained(groups, settings, made), strict=True):
        path = to / f"{specialist.operator_class}_{specialist.arch}{ENDING}"
        save(specialist, path)
        typer.echo(f"{path}: {count(len(own), 'space')}, {specialist.made['candidates']} candidates")


def _of_run(store: RunStore, manifest: RunManifest) -> tuple[dict[str, AnyRegion], list[Measured]]:
    """Regions by name, and the timings in them, of a run. UserError where its problem cannot be read any more."""
    kind, _, name = manifest.device.partition(":")
    outcomes = [one for one in store.outcomes() if one.correct and one.time_us is not None and one.provenance == "own"]
    if kind != "gpu" or not outcomes:
        return {}, []
    model = model_for(manifest.arch, name)
    problem = problem_of(store)
    regions = _regions(problem, model)
    stem = f"{Path(problem.ref.path).stem}@{manifest.problem_hash[:8]}"
    measured = [
        Measured(problem=f"{stem}/{one.family}", family=one.family, values=dict(one.slots or {}),
                 time_us=one.time_us.p50, device=model.name)
        for one in outcomes
        if one.family in regions and one.time_us is not None
    ]  # fmt: skip
    used = {one.family for one in measured}
    return {f"{stem}/{family}": region for family, region in regions.items() if family in used}, measured


def _regions(problem: Problem, model: DeviceModel) -> dict[str, AnyRegion]:
    """Family -> what it computes, of the ways that a search of the problem has; the preferred way first."""
    try:
        ways: Sequence[AnyRegion] = plan(capture(problem), device=model).ways
    except NotYetError as error:
        raise UserError(f"{problem.ref.path}: {error}; leave its runs out") from error
    found: dict[str, AnyRegion] = {}
    for way in ways:
        for spec in specs_for(way, model):
            found.setdefault(spec.family.name, way)
    return found
