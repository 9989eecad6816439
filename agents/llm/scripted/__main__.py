"""`python -m warpsmith.agents.llm.scripted`: the scripted server by hand."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from warpsmith.agents.llm.scripted import DIALECTS, Fault, FirstLegal, RandomLegal, ScriptedServer
from warpsmith.agents.llm.scripted.faults import KINDS


def main(arguments: list[str] | None = None) -> int:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m warpsmith.agents.llm.scripted",
        description="A model server on loopback that follows a script: chat completions without a model.",
        epilog=f"Kinds of faults: {', '.join(KINDS)}.",
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--dialect", choices=tuple(DIALECTS), default="openai", help="how forms of replies are taken")
    parser.add_argument("--model", default="scripted", help="the name that it serves")
    parser.add_argument("--key", help="the only key that is accepted (default: any)")
    parser.add_argument("--player", choices=("first", "random"), default="random", help="which legal values it replies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND[:ROLE][@N,M][%P]",
        help="a fault, on the role's prompts, the N-th and M-th request, with probability P; repeatable",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        faults = [Fault.parse(text) for text in given.fault]
    except ValueError as error:
        parser.error(str(error))
    player = RandomLegal(given.seed) if given.player == "random" else FirstLegal()
    server = ScriptedServer(player, given.dialect, faults, given.model, given.key, given.port, given.seed)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with server:
            sys.stdout.write(f"{server.base_url} serves {given.model!r} until Ctrl-C\n")
            sys.stdout.flush()
            ended.wait()
    except OSError as error:
        parser.error(f"port {given.port}: {error.strerror}")
    sys.stdout.write(f"{len(server.requests)} requests\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
