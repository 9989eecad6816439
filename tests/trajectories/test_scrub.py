"""Whatever secret is put wherever into a text is gone afterwards, and texts without any stay as they are."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from warpsmith.rl.trajectories.scrub import Scrubber

ROOT = Path(__file__).resolve().parents[2]
MINE = Scrubber(
    secrets=("correct horse battery",), hosts=("gpu-node-7",), users=("jdoe",), folders=("/home/Jane Doe",)
)  # fmt: skip
Draw = Callable[[np.random.Generator, int], str]


def word(rng: np.random.Generator, n: int, letters: str = string.ascii_letters + string.digits) -> str:
    return "".join(rng.choice(list(letters), n))


def _path(root: str) -> Draw:
    return lambda rng, n: f"/{root}/" + "/".join(word(rng, 5) for _ in range(1 + n % 4)) + ".cu"


SECRETS: dict[str, Draw] = {
    "openai": lambda rng, n: "sk-proj-" + word(rng, 20 + n),
    "hugging face": lambda rng, n: "hf_" + word(rng, 20 + n),
    "github": lambda rng, n: "ghp_" + word(rng, 36),
    "github, fine": lambda rng, n: "github_pat_" + word(rng, 30 + n),
    "amazon": lambda rng, n: "AKIA" + word(rng, 16, string.ascii_uppercase + string.digits),
    "google": lambda rng, n: "AIza" + word(rng, 35),
    "slack": lambda rng, n: "xoxb-" + word(rng, 20 + n),
    "web token": lambda rng, n: f"eyJ{word(rng, 20)}.{word(rng, 10 + n)}.{word(rng, 10)}",
    "header": lambda rng, n: "Authorization: Bearer " + word(rng, 12 + n) + "7",
    "of the environment": lambda rng, n: "correct horse battery",
    "home": _path("home"),
    "mac": _path("Users"),
    "cluster": _path("scratch"),
    "temporary": _path("tmp"),
    "windows": lambda rng, n: "C:\\Users\\" + word(rng, 4 + n) + "\\k.cu",
    "tilde": lambda rng, n: "~/" + word(rng, 3 + n) + "/k.cu",
    "own folder": lambda rng, n: f"/home/Jane Doe/{word(rng, 3 + n)}",
    "url": lambda rng, n: f"http://{word(rng, 3, string.ascii_lowercase)}:pw@{word(rng, 3 + n)}:8000/v1",
    "mail": lambda rng, n: f"{word(rng, 3 + n)}@{word(rng, 5, string.ascii_lowercase)}.com",
    "address": lambda rng, n: ".".join(str(rng.integers(256)) for _ in range(4)),
    "address, new": lambda rng, n: "fe80::" + ":".join(f"{rng.integers(1, 65536):x}" for _ in range(4)),
    "cloud host": lambda rng, n: f"ip-10-0-{n}-7.ec2.internal",
    "this host": lambda rng, n: "gpu-node-7" + (".example.com" if n % 2 else ""),
    "person": lambda rng, n: "jdoe",
}
AROUND = [("", ""), (" ", " "), ('"', '"'), ("(", ")"), ("in ", ": error"), ("x=", ";"), ("\n", "\n"), ("'", "',")]
PROSE = "line 3: too many registers; float v = x[i] / rows; the tile takes 32 x 33 words. "


@pytest.mark.parametrize("kind", SECRETS)
def test_it_is_gone_wherever_it_stood(kind: str) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        secret = SECRETS[kind](rng, int(rng.integers(10)))
        before, after = AROUND[int(rng.integers(len(AROUND)))]
        cut = int(rng.choice([i for i, c in enumerate(PROSE) if c == " "]))
        text = f"{PROSE[:cut]} {before}{secret}{after} {PROSE[cut:]}"
        found = MINE.text(text)
        core = secret.removeprefix("Authorization: Bearer ")
        assert core not in found
        assert not any(part in found for part in core.split("/") if len(part) > 7), (secret, found)
        assert MINE.text(found) == found
        # The rest of the text is there.
        assert found.startswith(PROSE[:cut])
        assert found.endswith(PROSE[cut:])


def test_lists_and_dictionaries_are_gone_through_keys_and_all() -> None:
    value = {"/home/me/k.cu": ["by jdoe", {"at": "gpu-node-7"}, 3, None, True], "n": 1.5}
    assert MINE.value(value) == {"[path]": ["by [user]", {"at": "[host]"}, 3, None, True], "n": 1.5}


def test_named_keys_and_blocks() -> None:
    assert MINE.text('{"api_key": "abc-def", "n": 3}') == '{"api_key": [key], "n": 3}'
    assert MINE.text("password = 'hunter22'") == "password = [key]"
    block = "-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----"
    assert MINE.text(f"a {block} b") == "a [key] b"


@pytest.mark.parametrize(
    "text",
    [
        "int token = threadIdx.x + blockIdx.x * 128;", "y = x @ self.weight.T", "st.local.u32 [%r1], %r2;",
        "a/data/b / (c)/tmp", "x = a / b // comment", "kernels/rows.py:3", "at 12:34:56", "version 13.0.88",
        "std::max(a::b, 1)", "self.internal + torch.local", "basic operations with bearer bonds", "1.0f / 2.5e-3f",
        "./home/x and ../tmp/y", "#include <cuda_fp16.h>", "[path] of [user]",
    ],
)  # fmt: skip
def test_code_and_prose_stay_as_they_are(text: str) -> None:
    assert MINE.text(text) == text


def test_our_own_sources_and_prompts_stay_as_they_are() -> None:
    """What candidates and prompts are made of: a scrubber that garbles them would spoil what is learnt."""
    texts = [p for folder in ("kernels", "prompts", "examples") for p in (ROOT / folder).rglob("*")]
    seen = [path for path in texts if path.suffix in (".cu", ".md", ".jinja", ".py")]
    assert len(seen) > 100
    for path in seen:
        assert MINE.text(path.read_text()) == path.read_text(), path


def test_it_knows_this_machine_and_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody-else")
    mine = Scrubber.of_this_machine(
        {"SOME_API_KEY": "very-secret-value", "USER": "somebody", "HOSTNAME": "rack12b", "PATH": "/usr/bin"}
    )
    short = Scrubber.of_this_machine({"MAX_TOKENS": "131072000", "HOSTNAME": "x", "USER": "root", "KEY": "short"})
    assert short.text("x 131072000 root short") == "x 131072000 root short"
    text = json.dumps({"a": "very-secret-value", "b": "somebody on rack12b", "c": f"{Path.cwd()}/x/y.py"})
    assert json.loads(mine.text(text)) == {"a": "[key]", "b": "[user] on [host]", "c": "[path]"}
