"""What a run folder gets at its end besides the results: `model_new.py` and the report."""

from __future__ import annotations

from warpsmith.app.display import Display
from warpsmith.app.report import write_report
from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.tools.export import export
from warpsmith.tools.runs.store import RunStore


def write_extras(store: RunStore, found: bool, display: Display) -> None:
    """Writes both; what cannot be written is told and takes nothing from the run. `found`: there is a best."""
    if found:
        try:
            export(store, "model_new")
        except (UserError, EnvironmentError_) as error:
            # A live module has no source file to export.
            display.note(f"no model_new.py: {error}")
    try:
        write_report(store)
    except (UserError, EnvironmentError_) as error:
        display.note(f"no report.html: {error}")
