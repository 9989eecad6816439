"""Child processes that Ctrl-C in the terminal is not meant for: their parent decides what it ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def spawn(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """As `subprocess.Popen`, in a session of its own and with SIGINT blocked: between its fork and its own session the
    child still belongs to the terminal, and an interrupt of that moment would end it as soon as it begins."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, start_new_session=True, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
