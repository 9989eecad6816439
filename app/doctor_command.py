"""`warpsmith doctor`: prints what app/doctor.py finds."""

from __future__ import annotations

import json as jsonlib

import typer

from warpsmith.app.doctor import diagnose, usable
from warpsmith.app.ending import interrupt_says
from warpsmith.app.variables import check_variables


def run_doctor(*, json: bool) -> int:
    """Exit code 0 if candidates can be compiled and run here, 4 if not. UserError for a variable without meaning."""
    with interrupt_says("no check has changed anything; run the command again"):
        check_variables()
        checks = diagnose()
    if json:
        typer.echo(jsonlib.dumps([check.model_dump(mode="json") for check in checks], indent=2))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            remedy = f"\n{'':{width + 10}}{check.remedy}" if check.remedy and check.state != "ok" else ""
            typer.echo(f"{check.state:<8}{check.name:<{width}}  {check.detail}{remedy}")
    return 0 if usable(checks) else 4
