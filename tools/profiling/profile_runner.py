"""What ncu watches: loads a candidate and runs its launch plan once on drawn inputs. Started by counters_ncu.

`python -m warpsmith.tools.profiling.profile_runner PAYLOAD PARENT`: a JSON file with `problem`, `target`, `plan` and
`report`; the id of the process whose end ends this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpsmith.kernels.problem import ProblemRef, load_ref
from warpsmith.kernels.records import CompileReport, Failure, LaunchPlan
from warpsmith.sandbox.backend import Argument
from warpsmith.tools.profiling.counters_ncu import done_mark
from warpsmith.tools.target import Target
from warpsmith.tools.verification import oracle
from warpsmith.tools.verification.outputs import GuardedOutputs, layout_of
from warpsmith.tools.verification.session import backend_for

_POISON = 0xFF


def run_once(payload: Mapping[str, Any]) -> Failure | None:
    """Runs the plan on a draw of the shipped inputs, with output buffers as eager's. Returns what went wrong."""
    problem = load_ref(ProblemRef.model_validate(payload["problem"]))
    backend = backend_for(Target.model_validate(payload["target"]))
    oracle.pin_flags()
    seed = int.from_bytes(os.urandom(7), "big")
    instance = problem.instantiate(device=str(backend.torch_device), seed=seed)
    layouts = tuple(layout_of(value) for value in oracle.eager(instance, instance.inputs))
    outputs = GuardedOutputs(layouts, backend.torch_device)
    outputs.poison(_POISON)
    arguments: dict[str, Argument] = {f"in{n}": value for n, value in enumerate(instance.inputs)}
    arguments |= {f"param:{name}": tensor for name, tensor in instance.parameters.items()}
    # The run that a recording begins with would be counted as well.
    plan = LaunchPlan.model_validate(payload["plan"]).model_copy(update={"graph": False})
    loaded = backend.load(CompileReport.model_validate(payload["report"]), plan)
    result = loaded.launch(arguments | outputs.named(), poison=_POISON)
    if result.refused is not None:
        return Failure(stage="emulate", kind="unsupported", message=result.refused)
    return result.failure


def _end_with(parent: int) -> None:
    """Kills this process group, which ncu leads, when the process that asked for the profile is gone."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(parent)
        select.select([handle], [], [])
    os.killpg(0, signal.SIGKILL)


def main(words: list[str]) -> int:
    """Exit code 0 where the plan ran; else the failure as the last line of stderr."""
    threading.Thread(target=_end_with, args=(int(words[1]),), daemon=True).start()
    failure = run_once(json.loads(Path(words[0]).read_text()))
    if failure is None:
        done_mark(Path(words[0])).touch()
        return 0
    sys.stderr.write(f"{failure.kind}: {failure.message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
