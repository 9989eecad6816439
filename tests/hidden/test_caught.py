"""Code slots that are right at the declared shape alone are caught, in every family; their honest neighbours pass."""

import re

import hidden_problems as problems
import pytest

from warpsmith.kernels.families.slab import SlabFamily
from warpsmith.kernels.family import spec_for

LAST = re.compile(r"(const float \w+ = )([^\n]*);\Z")


def where(condition):
    """The last value of a text, zero where the condition does not hold."""
    return lambda text: LAST.sub(rf"\g<1>({condition}) ? (\g<2>) : 0.0f;", text)


def instead(old, new):
    return lambda text: text.replace(old, new)


POINT = "(long long)base + (item * BLOCK + (int)threadIdx.x) * VECTOR + lane"

CASES = {
    # problem, family: slot, edits that hold at the declared shape alone, edits that hold everywhere
    ("map", "map"): (
        "body",
        {"literal total": where(f"{POINT} < 7200"), "no tail": where(f"{POINT} < TOTAL / 32 * 32")},
        {"bound": where(f"{POINT} < TOTAL")},
    ),
    ("softmax", "row"): (
        "body1",
        {"literal length": where("position < 300"), "no tail": where("position < SIZE / 4 * 4")},
        {"length": where("position < SIZE"), "another order": instead("x0 - red0", "-(red0 - x0)")},
    ),
    ("softmax", "global_reduce"): (
        "post",
        {"literal length": where("position < 300"), "no tail": where("position < SIZE / 4 * 4")},
        {"length": where("position < SIZE")},
    ),
    ("columns", "column"): (
        "finish",
        {"literal results": where("point < 384"), "no tail": where("point < KEPT / 32 * 32")},
        {"results": where("point < KEPT"), "reciprocal": instead("red0 / 40.0f", "red0 * 0.025f")},
    ),
    ("loss", "global_reduce"): (
        "body0",
        {"literal size": where("position < 6144"), "no tail": where("position < SIZE / 32 * 32")},
        {"size": where("position < SIZE")},
    ),
    ("gemm", "gemm"): (
        "epilogue",
        {"literal rows": where("m < 96"), "literal columns": where("n < 64"), "no tail": where("m < SIZE_M / 32 * 32")},
        {"rows": where("m < SIZE_M && n < SIZE_N")},
    ),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Outcomes of a problem by family and label: each edit of CASES, and honest samples of every search space."""
    known = {}

    def find(problem):
        labels = []

        def make(specs):
            made = []
            for family, spec in specs.items():
                slot, dishonest, honest = CASES.get((problem, family), ("", {}, {}))
                text = next((str(one.default) for one in spec.slots if one.name == slot), "")
                for label, edit in (dishonest | honest).items():
                    assert edit(text) != text
                    made.append(spec.emit(spec.sensible() | {slot: edit(text)}))
                    labels.append((family, label))
                for number, candidate in enumerate(problems.sampled(spec, 2, seed=11)):
                    made.append(candidate)
                    labels.append((family, f"sample {number}"))
            return made

        if problem not in known:
            loaded = problems.problem(tmp_path_factory.mktemp(problem), problem)
            _, outcomes = problems.verdicts(loaded, make, seed=5)
            known[problem] = dict(zip(labels, outcomes, strict=True))
        return known[problem]

    return find


@pytest.mark.parametrize("name", CASES, ids="-".join)
def test_what_holds_at_the_declared_shape_alone_is_wrong(judged, name):
    slot, dishonest, _ = CASES[name]
    for label in dishonest:
        outcome = judged(name[0])[name[1], label]
        assert outcome.status == "wrong", label
        assert outcome.shape_specific is None
        assert (outcome.failure.stage, outcome.failure.kind, outcome.failure.slot) == ("verify", "hidden_shape", slot)
        digits = re.findall(r"\d+", re.sub(r"error [\d.e+]+ times", "", outcome.failure.message))
        assert digits in ([], ["1"]), "a message names the class, never the sizes"


@pytest.mark.parametrize("name", CASES, ids="-".join)
def test_edits_that_hold_everywhere_pass(judged, name):
    for label in CASES[name][2]:
        outcome = judged(name[0])[name[1], label]
        assert (outcome.status, outcome.shape_specific) == ("ok", False), (label, outcome.failure, outcome.warnings)


@pytest.mark.parametrize("problem", problems.TEXTS)
def test_no_honest_candidate_is_refused(judged, problem):
    samples = {key: outcome for key, outcome in judged(problem).items() if key[1].startswith("sample")}
    assert len(samples) >= 2
    for key, outcome in samples.items():
        assert (outcome.status, outcome.shape_specific) == ("ok", False), (key, outcome.failure, outcome.warnings)


@pytest.mark.slow
@pytest.mark.parametrize("problem", problems.TEXTS)
def test_no_honest_candidate_of_many_is_refused(tmp_path, problem):
    def make(specs):
        return [made for spec in specs.values() for made in problems.sampled(spec, 10, seed=23)]

    candidates, outcomes = problems.verdicts(problems.problem(tmp_path, problem), make)
    assert len(candidates) >= 10
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        assert outcome.status == "ok", (candidate.family, candidate.values, outcome.failure)
    assert sum(outcome.shape_specific is False for outcome in outcomes) >= 0.9 * len(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["softmax", "norm"])
def test_no_honest_team_of_blocks_is_refused(tmp_path, problem):
    """Searches see teams for rows far too long for this place, so their space is made here."""

    def make(specs):
        row = specs["row"]
        specs["slab"] = spec_for(SlabFamily(), row.region, row.device)
        return problems.sampled(specs["slab"], 6, seed=23)

    candidates, outcomes = problems.verdicts(problems.problem(tmp_path, problem), make)
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        assert (outcome.status, outcome.shape_specific) == ("ok", False), (candidate.values, outcome.failure)


def test_a_hang_and_a_crash_at_a_hidden_shape_are_what_they_are(tmp_path):
    def make(specs):
        spec = specs["row"]
        text = str(next(one.default for one in spec.slots if one.name == "post"))
        hang = "while (SIZE != 300) __syncwarp(__activemask());\n" + text
        wild = text.replace("expf(v0)", "expf(v0) + (SIZE != 300 ? in0[1 << 30] : 0.0f)")
        refused = 'static_assert(SIZE == 300, "size");\n' + text
        return [spec.emit(spec.sensible() | {"post": edited}) for edited in (hang, wild, refused)]

    _, (hang, wild, refused) = problems.verdicts(problems.problem(tmp_path, "softmax"), make)
    assert hang.status == "hang"
    assert wild.status == "crashed"
    assert (refused.status, refused.failure.kind) == ("wrong", "hidden_shape")
    for outcome in (hang, wild, refused):
        assert outcome.failure.message.startswith("fails at ")
        assert outcome.failure.slot == "post"


def test_screening_judges_no_shape_and_foreign_sources_the_declared_one_alone(tmp_path):
    def make(specs):
        made = specs["map"].emit(specs["map"].naive)
        freeform = made.model_copy(update={"family": "freeform", "values": {}, "slot_lines": {}})
        return [freeform, made.model_copy(update={"source": made.source + "\n// by hand"})]

    _, outcomes = problems.verdicts(problems.problem(tmp_path, "map"), make)
    for outcome in outcomes:
        assert (outcome.status, outcome.shape_specific) == ("ok", True)
        assert any("template" in text for text in outcome.warnings)
