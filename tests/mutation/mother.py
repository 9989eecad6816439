"""Forks a child for each request, with the heavy imports done: `mother.py TESTS` reads JSON lines, answers in kind.

A request names the tree whose `warpsmith` is to be imported, so none of it may be imported here. The answer holds the
child's complaints, or how it ended.
"""

import faulthandler
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

HEAVY = ("torch", "numpy", "pydantic", "jinja2", "filelock", "tree_sitter", "tree_sitter_cuda", "elftools.elf.elffile",
         "langgraph.graph", "torch.export", "torch._dynamo", "torch._inductor.decomposition",
         "torch._functorch.aot_autograd", "networkx")  # fmt: skip

PATIENCE_S = 240
"""A mutant may make a check wait for ever."""


def child(tests: str, request: dict, answer: Path) -> None:
    """Runs the checks of one request against its tree; ends, telling where it stands, after a while."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    sys.path[:0] = [request["tree"], tests, f"{tests}/mutation"]
    os.environ["PYTHONPATH"] = os.pathsep.join((request["tree"], tests))
    said = importlib.import_module("checks").run(request)
    answer.write_text(json.dumps(said))


def main() -> None:
    """Serves until the parent closes standard input."""
    for name in HEAVY:
        importlib.import_module(name)
    out = os.dup(1)
    os.dup2(2, 1)
    os.write(out, b"ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        answer = Path(tempfile.mkdtemp(dir=request["folder"])) / "answer.json"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(sys.argv[1], request, answer)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        said = json.loads(answer.read_text()) if answer.exists() else None
        reply = {"said": said, "ended": os.waitstatus_to_exitcode(status)}
        os.write(out, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
