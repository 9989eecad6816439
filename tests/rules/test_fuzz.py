"""Random texts: the rules never raise, and their time grows with the text alone."""

from __future__ import annotations

import random
import time

import pytest
from rule_samples import kernel

from warpsmith.kernels.slot_text import MAX_CHARACTERS, refusal
from warpsmith.tools.rules.ptx_policy import Manifest, check_compiled
from warpsmith.tools.rules.source_rules import refuse_text

CPP_TEXT = (
    "a < > ( ) { } ; * & if else for [ ] , int = template :: 1 -> ++ ! ~ ? : ' \" /* */ // \\ # %: return [&] 0x1 "
    '__shfl_sync asm static R"( )" u8 1\' \n \t \r \0 \u00e9 \u202e ??/ case break struct operator lambda auto'
)
PTX_TEXT = (
    ".global .visible .entry .func { } ; , ( ) [ ] < > @ % %r1 %p ld st.global.u32 mov.u64 .reg .b64 = : $L a // /* */ "
    '" \\ # .loc .section .debug_str .pragma call .extern .const add.s64 setp.ne.s64 bra -1 0 1 \n \t \r \0 \u00e9'
)
CPP, PTX = CPP_TEXT.split(" "), PTX_TEXT.split(" ")
HARD = [["a", "<"], ["a<"], ["a*", "(", ")"], ["(a"], ["a", "?", ":"], ["if(a)"], ["-a"], ["-"], ["["], ["{", "}"]]


def soup(words: list[str], rng: random.Random, count: int) -> str:
    some = rng.sample(words, rng.randint(1, len(words)))
    return rng.choice([" ", ""]).join(rng.choice(some) for _ in range(count))


@pytest.mark.parametrize("seed", range(4))
def test_soups_of_tokens_never_raise(seed):
    rng = random.Random(seed)
    for _ in range(150):
        count = rng.choice([1, 5, 20, 100, 400])
        text = soup(CPP, rng, count)
        refusal(text)
        refuse_text(text)
        check_compiled(soup(PTX, rng, count), b"", Manifest())


@pytest.mark.parametrize("words", HARD)
def test_the_longest_slot_is_settled_in_time_that_its_length_sets(words):
    rng = random.Random(1)
    text = " ".join(rng.choice(words) for _ in range(MAX_CHARACTERS))[:MAX_CHARACTERS]
    started = time.process_time()
    refusal(text)
    assert time.process_time() - started < 1.0  # ten times what it takes; doubling work would take minutes


def test_mangled_compiler_output_never_raises(compile_text):
    report = compile_text(kernel("y[0] = t[n] + sinf(x[n]);", "__device__ const float t[4] = {1, 2};"))
    ptx = "\n".join(report.ptx_texts())
    rng = random.Random(3)
    for _ in range(60):
        at, length = rng.randrange(len(ptx)), rng.randrange(40)
        mangled = ptx[:at] + soup(PTX, rng, 3) + ptx[at + length :]
        check_compiled(mangled, rng.randbytes(200), Manifest(frozenset({"k"})))
