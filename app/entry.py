"""Where the process begins: what ends it is told even while the rest of the command is being imported."""

from __future__ import annotations

from warpsmith.app.ending import explained, fail, listen, secure_streams
from warpsmith.app.heap import collect_rarely


def main() -> None:
    """Entry point of `warpsmith` and of `python -m warpsmith`."""
    secure_streams()
    listen()
    collect_rarely()
    try:
        from warpsmith.app import cli
    except (MemoryError, OSError, ImportError, RuntimeError) as error:
        known = explained(error)
        if known is None:
            raise
        fail(known)
    cli.main()
