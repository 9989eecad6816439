"""The evaluator of a chat: its worker processes are started when something is evaluated for the first time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from warpsmith.app.audit import audit_problem
from warpsmith.app.chat.events import Events
from warpsmith.app.chat.screen import Screen
from warpsmith.app.workbench import Bench, roof_for
from warpsmith.kernels.errors import WarpsmithError
from warpsmith.kernels.family import KernelSpec
from warpsmith.kernels.records import Candidate, Outcome
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.profiling.insight import Wanted
from warpsmith.tools.runs.store import Level, RunStore
from warpsmith.tools.workers import Notify


class LateEvaluator:
    """An evaluator that opens itself. A session that only looks starts no process."""

    def __init__(
        self, bench: Bench, specs: Mapping[str, KernelSpec], store: RunStore, screen: Screen, notify: Notify,
        *, counters: Wanted,
    ) -> None:  # fmt: skip
        self._evaluator: Evaluator = bench.evaluator(
            specs, store, roof_for(specs, bench.machine), notify, counters=counters
        )
        self._store, self._screen = store, screen
        self._turn = asyncio.Lock()
        self._started: asyncio.Future[Evaluator] | None = None
        self._audited = False

    async def evaluate(self, candidates: Sequence[Candidate], *, level: Level) -> list[Outcome]:
        """As Evaluator.evaluate."""
        async with self._turn:
            if not self._audited:
                await self._open()
        return await self._evaluator.evaluate(candidates, level=level)

    async def close(self) -> None:
        """Ends the processes."""
        if self._started is not None:
            with contextlib.suppress(WarpsmithError):
                await self._started
                await self._evaluator.__aexit__(None, None, None)
            self._started = None

    async def _open(self) -> None:
        """Starts the processes. Who gives up waiting does not end that: nothing of a candidate runs in it."""
        self._screen.line("starting the judge ...", "dim")
        if self._started is None or (self._started.done() and self._started.exception() is not None):
            self._started = asyncio.ensure_future(self._evaluator.__aenter__())
        await asyncio.shield(self._started)
        await audit_problem(self._evaluator, self._store, Events(self._screen))
        self._audited = True
        if self._evaluator.isolation is not None:
            facts = {"isolation": self._evaluator.isolation.document()}
            self._store.write_manifest(self._store.manifest().model_copy(update=facts))
