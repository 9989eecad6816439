"""A launch plan whose arguments are packed: what is called to enqueue it."""

from __future__ import annotations

from collections.abc import Callable

from warpsmith.kernels.records import Failure
from warpsmith.sandbox.cuda import driver as cuda
from warpsmith.sandbox.cuda.library import LibraryError

Launch = Callable[[], object]


class LaunchRefused(Exception):
    """A step cannot be launched as the plan has it; nothing is wrong with the device."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class LaunchFailed(LaunchRefused):
    """It was launched, or recorded, and did not end well: nothing more is to be found out."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, failure.kind or "runtime_error")
        self.failure = failure


class Bound:
    """A plan whose arguments are packed: `enqueue` only launches, on the backend's stream."""

    def __init__(self, prepare: list[Launch], steps: list[Launch], deliver: Launch = lambda: None) -> None:
        """`deliver` copies outputs into their places that a library has left elsewhere."""
        self._prepare = prepare
        self._steps = steps
        self._deliver = deliver

    @property
    def steps(self) -> tuple[Launch, ...]:
        """What a run consists of, in order: a fill for each zeroed scratch buffer, then the plan's steps."""
        return tuple(self._steps)

    def prepare(self) -> None:
        """Load-time work on parameters. To be enqueued before the first run."""
        for step in self._prepare:
            self.run_step(step)

    def enqueue(self) -> None:
        """Enqueues all steps; the backend's stream must be the current one. LaunchRefused where the driver
        refuses a launch. Outputs are in their places afterwards."""
        self.call()
        self.deliver()

    def call(self) -> None:
        """As `enqueue`, but outputs may be left where a caller would be given them: what a call of the module does."""
        for step in self._steps:
            self.run_step(step)

    def deliver(self) -> None:
        """Enqueues what puts the outputs of the last call into their places."""
        self.run_step(self._deliver)

    def run_step(self, step: Launch) -> None:
        """Enqueues one step."""
        try:
            step()
        except LibraryError:
            raise
        except (RuntimeError, cuda.DriverError) as error:
            raise LaunchRefused(str(error).splitlines()[0], "launch_config") from error
