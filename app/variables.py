"""Environment variables with a wrong value are the user's mistake, to be told before anything starts."""

from __future__ import annotations

import os

from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.sandbox.cuda.deadline import launch_timeout_s
from warpsmith.sandbox.cuda.memory import limit_bytes
from warpsmith.sandbox.isolation.policy import requested
from warpsmith.sandbox.nvrtc import LIBRARY_VARIABLE, load_nvrtc
from warpsmith.tools.lease import companions


def check_variables() -> None:
    """UserError for the first variable whose value cannot be used; with or without a GPU."""
    limit_bytes()
    launch_timeout_s()
    companions()
    requested()
    if os.environ.get(LIBRARY_VARIABLE):
        try:
            load_nvrtc()
        except EnvironmentError_ as error:
            raise UserError(f"${LIBRARY_VARIABLE}: {error}; correct it, or unset it") from error
