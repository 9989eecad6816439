"""Replays the steps of a plan as one CUDA graph, on memory that stays where it is.

A graph holds the addresses it was recorded with, and every call of a module brings others: inputs are copied in before
a replay and outputs out after it, as an exported module does. That is part of a run wherever one is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

import torch

from warpsmith.kernels.records import Failure
from warpsmith.sandbox.backend import Argument, span_of
from warpsmith.sandbox.cuda.bound import Bound, Launch, LaunchFailed, LaunchRefused
from warpsmith.sandbox.cuda.library import LibraryError

_GUARD = 1 << 16
"""Bytes on each side of an output, as beside those of the judge."""
_ALIGN = 512


class Device(Protocol):
    """What recording needs of a backend."""

    def finish(self) -> Failure | None:
        """Waits for the stream under the launch deadline."""

    def capturing(self) -> bool:
        """Whether what is enqueued now is recorded by somebody."""

    def recorded(self, enqueue: Callable[[], object]) -> Launch:
        """What replays all that `enqueue` enqueues. RuntimeError where some of it cannot be recorded."""


class State(Protocol):
    """What a run finds and leaves: the scratch memory of a loaded candidate."""

    def keep_prepared(self) -> None:
        """Remembers what the load-time steps have written."""

    def renew(self) -> None:
        """Everything as before the first run."""


class Fixed:
    """Memory for a tensor like another one, between guard zones."""

    def __init__(self, like: torch.Tensor) -> None:
        size = span_of(like) * like.element_size()
        self._memory = torch.empty(-(-size // _ALIGN) * _ALIGN + 2 * _GUARD, dtype=torch.uint8, device=like.device)
        self._pattern = torch.randint(0, 256, (_GUARD + _ALIGN,), dtype=torch.uint8, device=like.device)
        self._payload = self._memory[_GUARD : _GUARD + size]
        self.flat = self._payload.view(like.dtype)
        """From the first element to the last one, gaps included."""
        self.tensor = self.flat.as_strided(like.shape, like.stride(), self.flat.storage_offset())
        self._mend()

    def poison(self, byte: int) -> None:
        """Fills it; the guards keep their pattern."""
        self._payload.fill_(byte)

    def broken(self) -> bool:
        """Whether something was written beside it; mends the guards."""
        found = not all(torch.equal(edge, self._pattern[: edge.numel()]) for edge in self._edges())
        if found:
            self._mend()
        return found

    def _mend(self) -> None:
        for edge in self._edges():
            edge.copy_(self._pattern[: edge.numel()])

    def _edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._memory[:_GUARD], self._memory[_GUARD + self._payload.numel() :]


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's memory from its first element to its last one. Elements that share memory are copied once, and no gap
    keeps what an earlier run left there."""
    return tensor.detach().as_strided((span_of(tensor),), (1,), tensor.storage_offset())


def is_given(name: str) -> bool:
    """Whether a caller hands the argument in anew with every call."""
    return not name.startswith("param:")


def key_of(arguments: Mapping[str, Argument]) -> Hashable:
    """What a graph is recorded for: addresses of parameters, values of numbers, layouts of all else."""

    def of(name: str, value: Argument) -> Hashable:
        if not isinstance(value, torch.Tensor):
            return type(value), value
        address = None if is_given(name) else value.data_ptr()
        return address, tuple(value.shape), tuple(value.stride()), value.dtype

    return tuple((name, of(name, value)) for name, value in sorted(arguments.items()))


class Recording:
    """The steps of a plan on memory of its own, and the graph of them once there is one."""

    def __init__(self, arguments: Mapping[str, Argument], bind: Callable[[Mapping[str, Argument]], Bound]) -> None:
        """`arguments` are those of some call; what `bind` raises comes out of here."""
        self.key = key_of(arguments)
        tensors = {n: value for n, value in arguments.items() if isinstance(value, torch.Tensor) and is_given(n)}
        self.fixed = {name: Fixed(value) for name, value in tensors.items()}
        self.bound = bind({**arguments, **{name: fixed.tensor for name, fixed in self.fixed.items()}})
        self._replay: Launch | None = None

    @property
    def recorded(self) -> bool:
        """Whether it can be replayed."""
        return self._replay is not None

    def poison(self, byte: int) -> None:
        """Fills inputs and outputs: no run finds there what an earlier one left."""
        for fixed in self.fixed.values():
            fixed.poison(byte)

    def broken(self) -> list[str]:
        """Outputs beside which something was written."""
        return [name for name, fixed in self.fixed.items() if name.startswith("out") and fixed.broken()]

    def record(self, device: Device) -> None:
        """Runs the steps once, as libraries choose algorithms and take memory at the first call, then records them.
        Inputs must be in place. LaunchFailed where they do not run to an end or cannot be recorded."""
        self.bound.enqueue()
        failure = device.finish()
        if failure is not None:
            raise LaunchFailed(failure)
        try:
            self._replay = device.recorded(self.bound.enqueue)
        except (RuntimeError, LaunchRefused, LibraryError) as error:
            # The end of a recording complains as well, and only that something went wrong before it.
            first = error.__context__ or error
            text = str(first).splitlines() or [type(first).__name__]
            message = f"the steps cannot be recorded as a graph: {text[0]}; leave `graph` out of the plan"
            raise LaunchFailed(Failure(stage="launch", kind="capture", message=message)) from error

    def replay(self) -> None:
        """Enqueues the recorded steps."""
        assert self._replay is not None
        self._replay()


class Replayed(Bound):
    """A recording with the tensors of one caller."""

    def __init__(
        self,
        recording: Recording,
        arguments: Mapping[str, Argument],
        *,
        device: Device,
        state: State,
        directly: Callable[[], Bound],
    ) -> None:
        """`directly` binds the steps to the caller's own tensors, for whoever runs them one by one."""
        super().__init__([], [])
        self._recording = recording
        self._device = device
        self._state = state
        self._directly = directly
        self._direct: Bound | None = None
        self._in: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._out: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, fixed in recording.fixed.items():
            given = arguments[name]
            assert isinstance(given, torch.Tensor)
            if name.startswith("out"):
                self._out.append((flat_of(given), fixed.flat))
            else:
                self._in.append((fixed.flat, flat_of(given)))

    @property
    def steps(self) -> tuple[Launch, ...]:
        """The plan's steps one by one, on the caller's own tensors."""
        self._direct = self._direct or self._directly()
        return self._direct.steps

    def prepare(self) -> None:
        """Load-time work on parameters. To be enqueued before the first run."""
        self._recording.bound.prepare()

    def call(self) -> None:
        """As `enqueue`: outputs are copied in every call."""
        self.enqueue()

    def enqueue(self) -> None:
        """Enqueues copies in, the graph and copies out; the first time it is recorded. Where the stream is itself being
        recorded, the steps take the graph's place, as a graph holds no other one."""
        if self._device.capturing():
            self._copy(self._in)
            self._recording.bound.enqueue()
            self._copy(self._out)
            return
        if not self._recording.recorded:
            self._state.keep_prepared()
            self._copy(self._in)
            self._recording.record(self._device)
            self._state.renew()
        self._copy(self._in)
        self._replay()
        self._copy(self._out)

    def _replay(self) -> None:
        try:
            self._recording.replay()
        except RuntimeError as error:
            raise LaunchRefused(str(error).splitlines()[0], "launch_config") from error

    def _copy(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for target, source in pairs:
            target.copy_(source)
