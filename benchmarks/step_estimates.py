"""What each step of a problem's plans takes by the cost model: the priors of all its ways; nothing is compiled or run.

usage: python benchmarks/step_estimates.py [--arch sm_90] [--least 0.02] FILE ...

The counterpart of `step_times.py`, which measures the same steps: one table in Markdown for each way.
"""

from __future__ import annotations

import argparse
import sys

from warpsmith.kernels.capture import capture
from warpsmith.kernels.composite import Composite, LibraryPart
from warpsmith.kernels.cost import Breakdown, breakdown, total_us
from warpsmith.kernels.device import DeviceModel, model_for
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.plan import plan
from warpsmith.kernels.problem import load_problem


def steps(spec: KernelSpec) -> tuple[Breakdown, ...]:
    """The estimate of each launch of a way's prior, steps one by one."""
    values = spec.sensible()
    return breakdown(spec.features(values | ({"launch": "steps"} if "launch" in values else {})), spec.device)


def names(spec: KernelSpec) -> list[str]:
    """The node of the graph that each launch of a composite makes; none are known of a single kernel."""
    if not isinstance(spec.region, Composite):
        return []
    found = []
    for part in spec.region.parts:
        if part.load_time:
            continue
        found.append(str(part.step.out) if isinstance(part, LibraryPart) else ", ".join(part.outputs))
        found += ["copy"] if isinstance(part, LibraryPart) and part.copied else []
    return found


def show(title: str, spec: KernelSpec, share: float) -> None:
    """The table of one way; steps below a share of the whole are left out."""
    found = steps(spec)
    whole = total_us(found)
    labels = names(spec)
    labels = labels if len(labels) == len(found) else [""] * len(found)
    print(f"\n{title}: {whole:.0f} us in {len(found)} launches\n\n| us | bound | step |\n|---|---|---|")
    for one, label in zip(found, labels, strict=True):
        if one.total_us >= share * whole:
            print(f"| {one.total_us:.0f} | {one.bound} | {one.kernel} {label} |")


def show_all(path: str, device: DeviceModel, share: float) -> None:
    """The tables of a problem's ways, the preferred one first."""
    found = plan(capture(load_problem(path, overrides={}, inputs=None, mode="eval")), device=device)
    for way in found.ways:
        for spec in specs_for(way, device):
            show(f"{path}, {spec.family.name}", spec, share)
    if found.rewritten is not None:
        after = ", ".join(found.rewritten.rewrites)
        for spec in (spec for way in found.rewritten.ways for spec in specs_for(way, device)):
            show(f"{path} rewritten by {after}, {spec.family.name}", spec, share)


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--least", type=float, default=0.0, help="share of the whole below which a step is left out")
    asked = parser.parse_args()
    for path in asked.problems:
        show_all(path, model_for(asked.arch), asked.least)
    return 0


if __name__ == "__main__":
    sys.exit(main())
