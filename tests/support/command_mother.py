"""Runs commands in forks of a process that has imported what they need: `command_mother.py` reads JSON lines.

A request holds the words, the folder, the environment and the files for the two streams; the answer is the exit code.
"""

import asyncio
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn, TextIO

from warpsmith.sandbox.stem import imports_kept
from warpsmith.tools.target import Target
from warpsmith.tools.workers import Workers

HEAVY = (
    "torch", "torch.export", "torch._dynamo", "torch._inductor.decomposition", "torch._functorch.aot_autograd",
    "networkx", "langgraph.graph", "langgraph.checkpoint.sqlite.aio", "tree_sitter_cuda", "rich.live",
    "warpsmith.app.cli", "warpsmith.app.optimize", "warpsmith.app.workbench", "warpsmith.tools.judge",
)  # fmt: skip


def child(request: dict) -> NoReturn:
    """The command, as if it had been started by itself."""
    code = 1
    try:
        os.setsid()
        for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
            handle = os.open(path, os.O_RDWR | os.O_CREAT)
            os.dup2(handle, number)
            os.close(handle)
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None
        os.chdir(request["folder"])
        sys.argv = ["warpsmith", *request["words"]]
        sys.modules["warpsmith.app.cli"].main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serves until the parent closes standard input."""
    for name in HEAVY:
        importlib.import_module(name)
    requests, answers = os.fdopen(os.dup(0)), os.dup(1)
    for name in (requests.fileno(), answers):
        os.set_inheritable(name, False)
    with imports_kept():
        asyncio.run(worker_imports())
        serve(requests, answers)


async def worker_imports() -> None:
    """Starts a worker and ends it: those of the commands are forks of what it leaves."""
    async with Workers(Target(kind="cpu", arch="sm_90")):
        pass


def serve(requests: TextIO, answers: int) -> None:
    """Runs one command after another."""
    for line in requests:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
    main()
