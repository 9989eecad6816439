"""The error tree. A kernel that fails to compile, is wrong or crashes is a result value, never one of these.

WarpsmithError
├── UserError             the user's input is wrong: shown without traceback, exit code 2
│   ├── NotYetError       legal input that no family covers yet: names the node, exit code 2
│   └── OutOfMemory       the problem does not fit into the memory that may be used
├── EnvironmentError_     this machine cannot do it (no NVRTC, no driver): exit code 4
├── SandboxError          a worker process failed in a way that says nothing about the candidate
│   ├── WorkerDied        the process ended without an answer
│   │   ├── WorkerKilled  somebody else ended it
│   │   └── WorkerExceeded  it held more than it may
│   ├── SandboxTimeout    no answer before the deadline
│   └── DeviceLost        the GPU is gone
└── BudgetExceeded        a budget ended the run
"""

from __future__ import annotations


class WarpsmithError(Exception):
    """Root of everything Warpsmith raises on purpose."""

    exit_code = 1


class UserError(WarpsmithError):
    """The user's input is wrong. The message names the file, the line where known, and the remedy."""

    exit_code = 2


class NotYetError(UserError):
    """Legal input that nothing here covers yet. The message names the node or the feature."""


class OutOfMemory(UserError):
    """The problem does not fit into the memory that may be used. The message says how to make it smaller."""


class EnvironmentError_(WarpsmithError):
    """This machine lacks something that the command needs. The message says what and how to get it."""

    exit_code = 4


class SandboxError(WarpsmithError):
    """A worker failed in a way that says nothing about the candidate it was given."""

    exit_code = 4


class WorkerDied(SandboxError):
    """The worker process ended without an answer."""


class WorkerKilled(WorkerDied):
    """It was ended by SIGKILL from outside: no kernel does that, so it says nothing about the job the first time."""


class WorkerExceeded(WorkerDied):
    """We ended it: it held more memory or processes than its policy allows."""


class SandboxTimeout(SandboxError):
    """The worker gave no answer before its deadline."""


class DeviceLost(SandboxError):
    """The GPU stopped answering."""


class BudgetExceeded(WarpsmithError):
    """A budget (evaluations, minutes, money) ended the run before anything was verified."""

    exit_code = 3
