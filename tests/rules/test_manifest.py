"""Kernels, PTX and cubin agree; what a family has opted into is let through."""

from __future__ import annotations

from pathlib import Path

import pytest
import regions
from rule_samples import REFUSED, STATE, asm, kernel

from warpsmith.kernels.assemble import fixed_kernels
from warpsmith.kernels.device import model_for
from warpsmith.kernels.families.map import MapFamily
from warpsmith.kernels.families.registry import FAMILIES, is_template, opt_ins
from warpsmith.kernels.family import spec_for
from warpsmith.tools.rules.cubin_symbols import read_symbols
from warpsmith.tools.rules.ptx_policy import Manifest, check_compiled


@pytest.fixture(scope="module")
def made(compile_text):
    """PTX and cubin of a source; what the rules say of it plays no part."""

    def make(source: str) -> tuple[str, bytes]:
        report = compile_text(source)
        assert report.modules, report.failure
        (module,) = report.modules
        return Path(module.ptx_path).read_bytes().decode(), Path(module.cubin_path).read_bytes()

    return make


def test_a_template_holds_its_kernels_and_no_other(made):
    ptx, cubin = made(kernel("y[0] = n;", 'extern "C" __global__ void other(float* y) { y[0] = 1; }'))
    assert check_compiled(ptx, cubin, Manifest()) is None
    assert check_compiled(ptx, cubin, Manifest(frozenset({"k", "other"}))) is None
    assert check_compiled(ptx, cubin, Manifest(frozenset({"k"}))).kind == "entry"
    assert check_compiled(ptx, cubin, Manifest(frozenset({"k", "other", "third"}))).kind == "entry"


def test_the_kernels_of_a_template_are_read_from_its_fixed_text():
    region = regions.pointwise("relu", regions.random(8, 8)).region
    candidate = spec_for(MapFamily(), region, model_for("sm_90")).emit({})
    assert fixed_kernels(candidate) == {step.kernel for step in candidate.plan.steps}
    escaped = spec_for(MapFamily(), region, model_for("sm_90")).emit(
        {"body": 'const float y = x; } }\nextern "C" __global__ void q() { {'}
    )
    assert fixed_kernels(escaped) == fixed_kernels(candidate)


def test_a_cubin_that_is_not_of_this_ptx_is_refused(made):
    plain, honest = made(kernel("y[0] = n;"))
    _, counting = made(kernel("y[0] = state++;", STATE))
    _, printing = made(kernel('printf("%d", n);'))
    _, other = made(kernel("y[0] = n;", 'extern "C" __global__ void other(float* y) { y[0] = 1; }'))
    assert check_compiled(plain, honest, Manifest()) is None
    assert check_compiled(plain, counting, Manifest()).kind == "global_state"
    assert check_compiled(plain, printing, Manifest()).kind == "printf"
    assert check_compiled(plain, other, Manifest()).kind == "cubin"
    assert check_compiled(plain, b"no cubin", Manifest()).kind == "cubin"
    assert check_compiled(plain, honest[:200], Manifest()).kind == "cubin"


def test_symbols_of_a_cubin(made):
    _, cubin = made(kernel('if (n == 77) printf("%d", n); y[0] = t[n];', "__device__ const float t[4] = {1};"))
    symbols = read_symbols(cubin)
    assert symbols.kernels == {"k"}
    assert symbols.variables == {"t", "$str"}
    assert symbols.undefined == {"vprintf"}


def test_what_a_family_has_opted_into_passes(made):
    ptx, cubin = made(kernel(asm("prefetch.global.L2::evict_last [%1];", inputs='"l"(x)')))
    assert check_compiled(ptx, cubin, Manifest()).kind == "l2_hint"
    assert check_compiled(ptx, cubin, Manifest(allows=frozenset({"l2_hint"}))) is None
    assert check_compiled(ptx, cubin, Manifest(allows=frozenset({"clock"}))).kind == "l2_hint"


def test_foreign_candidates_have_opted_into_nothing():
    assert not is_template("freeform")
    assert opt_ins("freeform") == frozenset()
    assert all(is_template(family.name) for family in FAMILIES)


def test_a_verdict_is_the_same_from_the_cache(compile_text):
    kind, source = REFUSED["counter"]
    first, second = compile_text(source), compile_text(source)
    assert second.cached
    assert first.failure == second.failure
    assert second.failure.kind == kind


def test_the_failure_names_the_line_that_made_it(compile_text):
    report = compile_text(kernel("y[1] = 2;\ny[0] = clock64();\n"))
    assert report.failure.message.startswith("line 4: `%clock64` reads a clock")
