"""Runs a user's Python so that it cannot end this process: an exit would read as a result that nobody reached."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

from warpsmith.kernels.errors import UserError

_REMEDY = "a problem file must not end the process that reads it; delete the call"
_lock = threading.Lock()
_depth = 0
_real_exit = os._exit


@contextlib.contextmanager
def kept_alive() -> Iterator[None]:
    """Inside of the block `os._exit` and `sys.exit` are a UserError that names the line. Processes forked there end as
    they like."""
    _enter(os.getpid())
    try:
        yield
    except SystemExit as error:
        raise UserError(f"{_place(error)}: raised SystemExit({error.code!r}): {_REMEDY}") from error
    finally:
        _leave()


def _enter(owner: int) -> None:
    global _depth, _real_exit

    def refused(status: int) -> NoReturn:
        if os.getpid() != owner:
            _real_exit(status)
        caller = sys._getframe(1)
        where = f"{caller.f_code.co_filename}, line {caller.f_lineno}"
        raise UserError(f"{where}: called os._exit({status!r}): {_REMEDY}")

    with _lock:
        if _depth == 0:
            _real_exit, replaced = os._exit, refused
            os._exit = replaced
        _depth += 1


def _leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            os._exit = _real_exit


def _place(error: BaseException) -> str:
    """File and line where an exception was raised."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}"
