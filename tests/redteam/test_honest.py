"""No honest kernel is refused: candidates of every family at odd shapes get full verdicts, hidden shapes included."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from redteam.arena import ARCH, HEAD, Finding, judged_candidates
from redteam.tasks import model

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.registry import specs_for
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.plan import plan as plan_of
from warpsmith.kernels.problem import Problem, load_problem
from warpsmith.kernels.records import Candidate
from warpsmith.tools.compile import Compiler
from warpsmith.tools.target import Target

PROBLEMS = {
    "affine_odd": model("x * 3 + 1", "torch.randn(7, 13)"),
    "affine_one": model("torch.tanh(x) - x", "torch.randn(1, 1)"),
    "leaky_transposed": model("torch.where(x > 0, x, 0.1 * x).t()", "torch.randn(11, 37)"),
    "broadcast": model("x * w + b", "torch.randn(5, 33), torch.randn(33), torch.randn(5, 1)", "x, w, b"),
    "mask": model("(x > 0.5) & (x < 2)", "torch.randn(9, 21)"),
    "softmax_odd": model("torch.softmax(x, 1)", "torch.rand(5, 17)"),
    "softmax_one": model("torch.softmax(x, 1)", "torch.rand(3, 1)"),
    "log_softmax": model("torch.log_softmax(x, 1)", "torch.randn(2, 129)"),
    "norm": model("F.layer_norm(x, (31,))", "torch.rand(3, 31)"),
    "variance": model("x.var(1)", "torch.rand(6, 65) + 5"),
    "argmax": model("torch.argmax(x, 1)", "torch.rand(4, 33)"),
    "any_row": model("(x > 0.9).any(1)", "torch.rand(4, 33)"),
    "column_sum": model("x.sum(0)", "torch.randn(33, 7)"),
    "column_softmax": model("torch.softmax(x, 0)", "torch.randn(19, 5)"),
    "total": model("x.sum()", "torch.randn(17, 19)"),
    "mean_square": model("((x - y) ** 2).mean()", "torch.randn(13, 11), torch.randn(13, 11)", "x, y"),
    "product": model("a @ b", "torch.randn(5, 7), torch.randn(7, 3)", "a, b"),
    "product_relu": model("torch.relu(a @ b.t())", "torch.randn(17, 33), torch.randn(9, 33)", "a, b"),
    "batched": model("torch.bmm(a, b)", "torch.randn(2, 5, 9), torch.randn(2, 9, 6)", "a, b"),
}
EACH = 6
"""Candidates of one problem and family."""
QUICK = ("affine_odd", "softmax_odd", "column_sum", "product")


def spread(spec: KernelSpec, count: int, seed: int) -> Iterator[dict]:
    """The naive and the sensible values, then valid ones at random."""
    yield spec.naive
    yield spec.sensible()
    rng = random.Random(seed)
    for _ in itertools.repeat(None, 20 * count):
        values = spec.naive | {slot.name: rng.choice(slot.values) for slot in spec.choice_slots}
        if spec.check(values) is None:
            yield values


def honest(problem: Problem, count: int) -> tuple[dict[str, KernelSpec], list[Candidate]]:
    """Candidates of every family that can compute a problem, all of different text."""
    specs = specs_for(plan_of(capture(problem)).region, model_for(ARCH))
    found: dict[str, Candidate] = {}
    for seed, spec in enumerate(specs):
        own: dict[str, Candidate] = {}
        for values in spread(spec, count, seed):
            if spec.check(values) is None:
                candidate = spec.emit(values)
                own.setdefault(candidate.source, candidate)
            if len(own) == count:
                break
        found |= own
    return {spec.family.name: spec for spec in specs}, list(found.values())


def verdicts(name: str, count: int, folder: Path, compiler: Compiler) -> list[Finding]:
    """Full verdicts on a problem's honest candidates."""
    folder.mkdir()
    path = folder / f"{name}.py"
    path.write_text(HEAD + PROBLEMS[name])
    problem = load_problem(str(path))
    specs, candidates = honest(problem, count)
    target = Target(kind="cpu", arch=ARCH)
    return judged_candidates(problem, candidates, compiler, target, specs)


def refused(found: list[Finding]) -> list[str]:
    """What was not taken; what the emulator cannot run has no verdict."""
    return [str(finding) for finding in found if finding.status not in ("ok", "not_measured")]


@pytest.mark.parametrize("name", QUICK)
def test_honest_kernels_pass(name: str, tmp_path: Path) -> None:
    with Compiler(ARCH, cache_dir=tmp_path / "cache", jobs=2) as compiler:
        found = verdicts(name, 2, tmp_path / name, compiler)
    assert refused(found) == []
    assert sum(finding.status == "ok" for finding in found) >= 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_honest_kernels_pass(tmp_path: Path) -> None:
    found: list[Finding] = []
    with Compiler(ARCH, cache_dir=tmp_path / "cache", jobs=2) as compiler:
        for name in PROBLEMS:
            found += verdicts(name, EACH, tmp_path / name, compiler)
    assert refused(found) == []
    assert sum(finding.status == "ok" for finding in found) >= 100
