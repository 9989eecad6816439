"""What leaves a run: kernel.cu with launch.json, or a `ModelNew` that runs by itself with torch and
cupy."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard

import jinja2
import torch
from torch.utils import _pytree as pytree

from warpsmith.kernels.errors import UserError
from warpsmith.kernels.indexing import row_major
from warpsmith.kernels.library import ALLOWED
from warpsmith.kernels.problem import FunctionModule, Instance, Problem, ProblemRef, StoredTensor, load_ref
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, LibraryStep, Outcome
from warpsmith.kernels.syntax import parsed
from warpsmith.kernels.user_code import kept_alive
from warpsmith.sandbox.cuda.arguments import Parameter, entry_parameters
from warpsmith.sandbox.cuda.left_outputs import left_outputs
from warpsmith.sandbox.results import result_names
from warpsmith.tools.runs.store import RunStore, room_needed, write_atomically
from warpsmith.tools.verification.outputs import layout_of

Form = Literal["cu", "model_new"]
Step = KernelStep | LibraryStep


def export(store: RunStore, as_: Form, *, to: Path | None = None) -> tuple[Path, ...]:
    """Writes the best verified candidate of a run to the folder `to` (default: its `best/`) and returns the
    files. UserError where the run has none, or its problem cannot be loaded any more."""
    outcome = store.best()
    if outcome is None:
        raise UserError(f"{store.folder} holds no verified candidate: continue it with --resume {store.folder}")
    candidate = store.get_candidate(outcome.candidate)
    folder = to or store.folder / "best"
    with room_needed(folder, option="--to DIR"):
        folder.mkdir(parents=True, exist_ok=True)
        if as_ == "model_new":
            text = _text_of(store, candidate, outcome)
            write_atomically(folder / "model_new.py", text.encode())
            return (folder / "model_new.py",)
        write_atomically(folder / "kernel.cu", candidate.source.encode())
        write_atomically(folder / "launch.json", candidate.plan.model_dump_json(indent=1).encode())
    return folder / "kernel.cu", folder / "launch.json"


def _text_of(store: RunStore, candidate: Candidate, outcome: Outcome) -> str:
    """`model_new`, in a confined process where a model wrote the problem's module."""
    arch, ref = store.manifest().arch, _ref_of(store)
    if ref.kind != "reference":
        return model_new(problem_of(store), candidate, arch=arch, outcome=outcome)
    from warpsmith.tools.compile import compile_candidate
    from warpsmith.tools.jail import run_confined

    report = compile_candidate(candidate, arch)
    if not report.modules:
        raise UserError(f"the candidate does not compile for {arch}: {report.failure}")
    payload = {
        "problem": ref.model_dump(mode="json"), "candidate": candidate.model_dump(mode="json"),
        "outcome": outcome.model_dump(mode="json"), "arch": arch, "ptx": "\n".join(report.ptx_texts()),
    }  # fmt: skip
    return str(run_confined("warpsmith.tools.jail:export_job", payload, ref))


def problem_of(store: RunStore) -> Problem:
    """The problem of a run, from its manifest (`config["problem"]` holds a ProblemRef). One that a model wrote is held:
    it does not run in this process."""
    manifest, ref = store.manifest(), _ref_of(store)
    if ref.kind == "reference":
        from warpsmith.tools.jail import held_problem

        problem: Problem = held_problem(ref.model_copy(update={"lifted": None}))
    else:
        problem = load_ref(ref)
    if problem.hash != manifest.problem_hash:
        raise UserError(f"{problem.path} is not what this run was made for: it has changed since")
    return problem


def _ref_of(store: RunStore) -> ProblemRef:
    manifest = store.manifest()
    kept = manifest.config.get("problem")
    return ProblemRef.model_validate(kept) if isinstance(kept, dict) else ProblemRef(path=manifest.problem_path)


def model_new(
    problem: Problem, candidate: Candidate, *, arch: str, ptx: str | None = None, outcome: Outcome | None = None
) -> str:
    """Text of a file with `ModelNew`. Without `ptx` the source is compiled for `arch` where the types of
    plain numbers among the inputs are not plain from the plan. UserError where the problem has no source
    file."""
    if not problem.source:
        raise UserError("model_new needs a problem that lies in a file: a live module has no source to copy")
    instance = problem.instantiate(device="meta", seed=0)
    outputs, spec = _outputs(instance)
    parameters = _parameters(candidate, instance, ptx, arch)
    base, source = _base(problem, instance)
    plan, operands = candidate.plan, candidate.plan.operands
    prepare, steps = ([_step(s, instance, parameters) for s in part] for part in (plan.prepare, plan.steps))
    launched = [step for step in (*plan.prepare, *plan.steps) if isinstance(step, KernelStep)]
    used = {plan.base(name) for step in (*plan.prepare, *plan.steps) for name in step.named}
    named = sorted(name[6:] for name in used if _is_parameter(name))
    tensors = (n for n, value in enumerate(instance.inputs) if isinstance(value, torch.Tensor))
    about = f", {outcome.status} on {outcome.verified_on}" if outcome and outcome.verified_on else ""
    return _template().render(
        name=problem.name + about,
        source=source.rstrip(),
        base=base,
        cuda=_literal(candidate.source),
        inputs=repr([_described(value) for value in instance.inputs]),
        outputs=repr([_described(value, dense=True) for value in outputs]),
        output_spec=repr(pytree.treespec_dumps(spec)),
        buffers=repr({n: (b.shape, b.dtype, b.init == "zero") for n, b in plan.buffers.items() if b.init != "result"}),
        views=repr({name: (v.of, v.shape, v.strides, v.offset) for name, v in plan.views.items()}),
        library=repr(_library(plan)),
        results=repr({name: _strides(plan.buffers[name]) for name in sorted(result_names(plan))}),
        left=repr(tuple(sorted(left_outputs(plan)))),
        prepare=repr(prepare),
        steps=repr(steps),
        parameters=repr(named),
        constants=repr(_constants(problem, named)),
        graph=plan.graph,
        benchmark=plan.benchmarks,
        copied=repr([n for n in tensors if f"in{n}" in operands]),
        extended=any(step.cluster != (1, 1, 1) or step.cooperative for step in launched),
    )


def _strides(buffer: Buffer) -> tuple[int, ...]:
    return buffer.strides or row_major(buffer.shape)


@functools.cache
def _template() -> jinja2.Template:
    text = (Path(__file__).parent / "templates" / "model_new.py.jinja").read_text()
    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True).from_string(text)


def _outputs(instance: Instance) -> tuple[list[torch.Tensor], pytree.TreeSpec]:
    arguments: Any = pytree.tree_unflatten(list(instance.inputs), instance.structure)
    with torch.no_grad(), kept_alive():
        leaves, spec = pytree.tree_flatten(instance.module(*arguments))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], spec


def _described(value: Any, *, dense: bool = False) -> tuple[Any, Any, Any]:
    """Shape, strides and dtype; Nones for a number. Outputs get the layout that the judge gave them."""
    if not isinstance(value, torch.Tensor):
        return None, None, None
    layout = layout_of(value)
    strides = layout.strides if dense else tuple(value.stride())
    return layout.shape, strides, str(layout.dtype).removeprefix("torch.")


def _base(problem: Problem, instance: Instance) -> tuple[str, str]:
    """Name of the class to derive from, and the problem's source with its overrides written in."""
    source = pinned(problem.source, problem.ref.overrides)
    name = problem.ref.callable
    if isinstance(instance.module, FunctionModule):
        wrapper = (
            f"\n\nimport torch as _torch_of_reference\n\n\nclass _Reference(_torch_of_reference.nn.Module):\n"
            f"    def forward(self, *arguments):\n        return {name}(*arguments)\n"
        )
        return "_Reference", source + wrapper
    if type(instance.module).__name__ != name:
        raise UserError(f"model_new needs a class or a function: {name!r} is neither")
    return name, source


def pinned(source: str, overrides: Mapping[str, str]) -> str:
    """Source with the values of overridden module-level assignments replaced."""
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, int, str]] = []
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    for node in parsed(source).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            text = overrides.get(node.targets[0].id)
            value = node.value
            if text is not None and value.end_lineno is not None and value.end_col_offset is not None:
                first = starts[value.lineno - 1] + value.col_offset
                edits.append((first, starts[value.end_lineno - 1] + value.end_col_offset, text))
    data = source.encode()
    for first, last, text in sorted(edits, reverse=True):
        data = data[:first] + text.encode() + data[last:]
    return data.decode()


def _parameters(
    candidate: Candidate, instance: Instance, ptx: str | None, arch: str
) -> Mapping[str, Sequence[Parameter]]:
    """Declared parameter types by kernel, where the plan passes a plain number."""
    numbers = {f"in{n}" for n, value in enumerate(instance.inputs) if not isinstance(value, torch.Tensor)}
    steps = (*candidate.plan.prepare, *candidate.plan.steps)
    if not any(a in numbers for step in steps for a in step.args if isinstance(a, str)):
        return {}
    if ptx is None:
        from warpsmith.tools.compile import compile_candidate

        report = compile_candidate(candidate, arch)
        if not report.modules:
            raise UserError(f"the candidate does not compile for {arch}: {report.failure}")
        ptx = "\n".join(report.ptx_texts())
    return entry_parameters(ptx)


def _step(step: Step, instance: Instance, parameters: Mapping[str, Sequence[Parameter]]) -> dict[str, Any]:
    """A step as plain data; plain numbers get the type that their kernel declares."""
    plain: dict[str, Any] = step.model_dump(mode="python")
    if isinstance(step, LibraryStep):
        return plain
    arguments: list[Any] = []
    for position, argument in enumerate(step.args):
        value = instance.inputs[int(argument[2:])] if _is_input(argument) else None
        if value is None or isinstance(value, torch.Tensor):
            arguments.append(argument)
        else:
            declared = parameters[step.kernel][position]
            real = declared.kind == "f" or (declared.kind == "b" and isinstance(value, float))
            arguments.append({f"{'f' if real else 'i'}{declared.size * 8}": argument})
    plain["args"] = arguments
    return plain


def _is_input(argument: Any) -> TypeGuard[str]:
    return isinstance(argument, str) and argument.startswith("in") and argument[2:].isdigit()


def _library(plan: LaunchPlan) -> dict[str, tuple[str, str | None, int | None, tuple[str, ...]]]:
    """What the plan's library steps call: overload, the one that takes `out=`, which result is meant, and what the
    results are called there."""
    names = sorted({step.library for step in (*plan.prepare, *plan.steps) if isinstance(step, LibraryStep)})
    return {n: (ALLOWED[n].overload, ALLOWED[n].out, ALLOWED[n].result, ALLOWED[n].outs) for n in names}


def _is_parameter(argument: Any) -> TypeGuard[str]:
    return isinstance(argument, str) and argument.startswith("param:")


def _constants(problem: Problem, named: Sequence[str]) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """Tensors that the original forward makes itself, as bytes."""
    stored = {name: StoredTensor.store(t) for name, t in problem.constants.items() if name in named}
    return {name: (tensor.dtype, tensor.shape, tensor.data) for name, tensor in stored.items()}


def _literal(text: str) -> str:
    """Text as a readable Python literal."""
    if "'''" in text or "\\" in text or (not text.isprintable() and "\r" in text):
        return repr(text)
    return f"'''{text}'''"
