"""The audit of a problem as commands show it: a calm warning, a line of the manifest."""

from __future__ import annotations

from warpsmith.app.display import Display
from warpsmith.kernels.errors import SandboxError
from warpsmith.tools.evaluate import Evaluator
from warpsmith.tools.runs.store import RunStore


async def audit_problem(evaluator: Evaluator, store: RunStore | None, display: Display) -> None:
    """Asks whether the problem tells trivial answers from right ones before anything else is judged on it."""
    try:
        found = await evaluator.audit()
    except SandboxError as error:
        display.note(f"the problem was not audited: {error}")
        return
    for text in found.warnings():
        display.note(text)
    if store is not None:
        audit = found.model_dump(mode="json") | {"payable": found.payable}
        store.write_manifest(store.manifest().model_copy(update={"audit": audit}))
