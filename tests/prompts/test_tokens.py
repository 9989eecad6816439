"""The estimate of tokens against SmolLM2's own tokenizer, over every prompt of every problem at hand that plans.

The model file lies under `.model/` or where $WARPSMITH_SMOLLM2 says; KernelBench's problems where
$WARPSMITH_KERNELBENCH says (its `level1` folder is read)."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.roles import EXAMPLES, asked_of

from warpsmith.agents.chat.context import LIMIT
from warpsmith.kernels.errors import WarpsmithError
from warpsmith.prompts.tokens import MESSAGE, estimate_chat

pytestmark = pytest.mark.slow
ROOT = EXAMPLES.parent
TEMPLATE = 5
"""Tokens that SmolLM2's chat template adds to a message: `<|im_start|>`, role, line ends, `<|im_end|>`."""


def model_file() -> Path:
    named = os.environ.get("WARPSMITH_SMOLLM2")
    found = [Path(named)] if named else sorted((ROOT / ".model").glob("SmolLM2*.gguf"))
    if not found:
        pytest.skip("no SmolLM2 model: set WARPSMITH_SMOLLM2 to its .gguf file")
    return found[0]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Byte-pair encoding with the vocabulary and merges of the model file; numbers are split into digits."""
    gguf, tokenizers = pytest.importorskip("gguf"), pytest.importorskip("tokenizers")
    fields = gguf.GGUFReader(model_file()).fields

    def strings(name: str) -> list[str]:
        field = fields[f"tokenizer.ggml.{name}"]
        return [bytes(field.parts[index]).decode() for index in field.data]

    assert strings("pre") == ["smollm"]
    vocabulary = {token: number for number, token in enumerate(strings("tokens"))}
    merges = [tuple(merge.split(" ")) for merge in strings("merges")]
    found = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    pre = tokenizers.pre_tokenizers
    found.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    return found


def problems() -> list[Path]:
    bench = os.environ.get("WARPSMITH_KERNELBENCH")
    level1 = Path(bench) / "level1" if bench else ROOT / ".kernelbench" / "KernelBench" / "level1"
    return [*sorted(EXAMPLES.glob("*.py")), *sorted(level1.glob("*.py"))]


@pytest.mark.timeout(1800)
def test_no_prompt_of_any_role_and_problem_is_over_the_limit_or_the_estimate(tokenizer: Any) -> None:
    assert TEMPLATE <= MESSAGE
    count, over = 0, []
    for path in problems():
        try:
            found = list(asked_of(path))
        except WarpsmithError:
            continue
        for asked in found:
            tokens = sum(len(tokenizer.encode(text).ids) + TEMPLATE for text in asked.texts)
            count += 1
            if not tokens <= estimate_chat(asked.texts) <= LIMIT:
                over.append((asked.name, tokens, estimate_chat(asked.texts)))
    assert count > 500
    assert not over
