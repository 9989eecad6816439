"""Turns a Problem into an OpGraph: traced without data, so that all machines see one graph, GPU or not."""

from __future__ import annotations

import inspect
import io
import logging
import operator
import re
import threading
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from warpsmith.kernels.canonical import Call, Canonical, canonical
from warpsmith.kernels.costs import bytes_moved, flops_of
from warpsmith.kernels.decompose import decomposition_table
from warpsmith.kernels.errors import NotYetError, UserError
from warpsmith.kernels.fake import fake_instance, forget_fake_constants
from warpsmith.kernels.one_thread import one_thread
from warpsmith.kernels.opgraph import GraphInput, NodeRef, OpGraph, OpNode, TensorSpec
from warpsmith.kernels.problem import FunctionModule, Instance, Problem, named_tensors
from warpsmith.kernels.recurrent import shapes_alone
from warpsmith.kernels.reference.held import HeldProblem
from warpsmith.kernels.reference.state import PlainState
from warpsmith.kernels.tracing import ONE_AT_A_TIME
from warpsmith.kernels.user_code import kept_alive

logger = logging.getLogger(__name__)

MAX_OPERATORS = 8_192
"""Of a traced graph: that many take half a minute to trace and to plan. DenseNet-201 has 2,000, a transformer of 24
layers 1,700, a recurrent loop 13 each step."""
SUPPORTED_INPUTS = frozenset(("float32", "float64", "float16", "bfloat16", "int32", "int64", "bool"))
"""Dtypes of inputs and parameters that some family can load."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)
_DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


class _NumberIsStructure(Exception):
    """A Python number turned out to decide sizes or control flow, so that it cannot stay a runtime value."""


def capture(problem: Problem, *, check_dtypes: bool = True) -> OpGraph:
    """The graph of forward in the problem's mode.

    Python floats among the inputs become 0-d scalar inputs (float64 where a tensor is float64, else
    float32); ints, and floats that decide sizes or branches, are baked in. Raises UserError where the
    user's code fails, NotYetError for what the graph cannot say and, with `check_dtypes`, for used inputs
    or parameters outside SUPPORTED_INPUTS.
    """
    if isinstance(problem, HeldProblem):
        graph = problem.graph()
    else:
        with one_thread:
            graph, constants = _trace(problem, refuse_empty=check_dtypes)
        problem.remember_constants(constants)
    if check_dtypes:
        refuse_unsupported(graph, problem)
    return graph


def lifted_constants(problem: Problem) -> dict[str, torch.Tensor]:
    """Tensors that forward creates from Python data, by the NAME of their `param:NAME`, on the CPU."""
    with one_thread:
        return _trace(problem)[1]


def can_be_called(problem: Problem) -> bool:
    """Whether forward runs on tensors without data: what does not cannot be captured, and this says so at a tenth of
    what a trace takes."""
    with one_thread:
        try:
            _call(fake_instance(problem))
        except Exception as error:
            logger.debug("%s does not run without data: %s", problem.path, error)
            return False
    return True


def refuse_unsupported(graph: OpGraph, problem: Problem) -> None:
    """Raise NotYetError naming the first used input or parameter whose dtype no family loads."""
    for index, ref in enumerate(graph.outputs):
        _refuse_empty(problem, f"output {index}", graph.spec(ref.name).numel)
    for leaf in graph.inputs.values():
        if leaf.spec.dtype not in SUPPORTED_INPUTS:
            raise NotYetError(
                f"{problem.path}: {leaf.ref} is {leaf.spec.dtype}; inputs and parameters of that type are "
                f"not supported yet (supported: {', '.join(sorted(SUPPORTED_INPUTS))})"
            )


def _refuse_empty(problem: Problem, name: str, numel: int) -> None:
    if numel == 0:
        raise UserError(
            f"{problem.path}: {name} has no elements: empty tensors are not supported; use sizes of at least 1"
        )


def _trace(problem: Problem, *, refuse_empty: bool = False) -> tuple[OpGraph, dict[str, torch.Tensor]]:
    """Graph and constants. A module that a model wrote leaves nothing to its next call."""
    instance = fake_instance(problem)
    state = PlainState(problem.path, instance.module) if problem.ref.kind == "reference" else None
    traced = _traced(problem, instance, refuse_empty)
    if state is not None:
        state.check_unchanged(instance.module)
    return traced


def _traced(problem: Problem, instance: Instance, refuse_empty: bool) -> tuple[OpGraph, dict[str, torch.Tensor]]:
    """A float that cannot stay a runtime value is baked in by a second trace."""
    if refuse_empty:
        for index, leaf in enumerate(instance.inputs):
            if isinstance(leaf, torch.Tensor):
                _refuse_empty(problem, f"in{index}", leaf.numel())
    floats = [index for index, leaf in enumerate(instance.inputs) if type(leaf) is float]
    if floats:
        try:
            return _Converter(problem, instance, _export(problem, instance, floats)).convert()
        except (UserError, MemoryError):
            raise
        except Exception as error:
            logger.debug("a Python number decides structure, baking it in: %s", error)
    try:
        return _Converter(problem, instance, _export(problem, instance, [])).convert()
    except (UserError, MemoryError):
        raise
    except Exception as error:
        raise _explain(problem, fake_instance(problem), error) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """torch logs and prints the trace of an operator that fails; the user gets one line from us instead. All of this is
    the process's own: one capture at a time, and standard output stays where it is while another thread may write."""
    with one_thread, warnings.catch_warnings():
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        try:
            if threading.current_thread() is threading.main_thread():
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    yield
            else:
                yield
        finally:
            logging.disable(before)


def _export(problem: Problem, instance: Instance, floats: list[int]) -> Any:
    """The decomposed ExportedProgram, the numbered float inputs passed as 0-d tensors."""
    inputs = list(instance.inputs)
    tensors = [leaf for leaf in [*inputs, *instance.parameters.values()] if isinstance(leaf, torch.Tensor)]
    wide = any(tensor.dtype is torch.float64 for tensor in tensors)
    for index in floats:
        mode = next(tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor))
        with mode:
            inputs[index] = torch.empty((), dtype=torch.float64 if wide else torch.float32)
    arguments = tuple(pytree.tree_unflatten(inputs, instance.structure))
    with ONE_AT_A_TIME, _quiet(), kept_alive(), torch.no_grad(), shapes_alone():
        program = torch.export.export(_traceable(instance.module), arguments, strict=False)
        # Before, as decomposing and what comes after it would hold the user up for minutes.
        _refuse_endless(problem, program)
        forget_fake_constants(program)
        return program.run_decompositions(decomposition_table())


def _refuse_endless(problem: Problem, program: Any) -> None:
    """A loop is traced turn by turn."""
    count = sum(node.op == "call_function" for node in program.graph.nodes)
    if count > MAX_OPERATORS:
        raise UserError(
            f"{problem.path}: forward is {count:,} operators, loops unrolled; at most {MAX_OPERATORS:,} are "
            f"taken: make its loops shorter, or give a part of the module; {problem.settable_text()}"
        )


def _traceable(module: torch.nn.Module) -> torch.nn.Module:
    """A plain function under the name `forward`: the tracer keeps stack frames of that name alone."""
    function = module.function if isinstance(module, FunctionModule) else None
    if not inspect.isfunction(function):
        return module
    code = function.__code__.replace(co_name="forward")
    named = types.FunctionType(code, function.__globals__, "forward", function.__defaults__, function.__closure__)
    named.__kwdefaults__ = function.__kwdefaults__
    return FunctionModule(named)


def _call(instance: Instance) -> Any:
    """Outputs of forward on the fake inputs."""
    mode = next(leaf.fake_mode for leaf in instance.inputs if isinstance(leaf, FakeTensor))
    with _quiet(), kept_alive(), mode, torch.no_grad(), enable_python_dispatcher(), shapes_alone():
        return instance.module(*pytree.tree_unflatten(list(instance.inputs), instance.structure))


def _explain(problem: Problem, instance: Instance, error: Exception) -> UserError:
    """Why a trace failed: the user's forward fails by itself, depends on data, or cannot be traced."""
    try:
        outputs = _call(instance)
    except _DATA_DEPENDENT as cause:
        return _data_dependent(problem, cause)
    except Exception as cause:
        return problem.user_error(cause, "forward")
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(outputs)):
        return _no_tensors(problem)
    if isinstance(error, (*_DATA_DEPENDENT, _NumberIsStructure)):
        return _data_dependent(problem, error)
    return NotYetError(f"{problem.path}: forward cannot be traced: {type(error).__name__}: {_first_line(error)}")


def _data_dependent(problem: Problem, error: Exception) -> NotYetError:
    return NotYetError(
        f"{problem.path}: forward depends on values of its tensors (shapes or branches), "
        f"which is not supported yet: {_first_line(error)}"
    )


def _no_tensors(problem: Problem) -> UserError:
    return UserError(f"{problem.path}: forward returns no tensors; return a tensor or a tuple of tensors")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(
        shape=tuple(int(size) for size in tensor.shape),
        strides=tuple(int(step) for step in tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        offset=int(tensor.storage_offset()),
    )


@dataclass(slots=True)
class _Converter:
    """Walks the traced graph once and builds the OpGraph."""

    problem: Problem
    instance: Instance
    program: Any
    inputs: dict[str, GraphInput] = field(default_factory=dict)
    nodes: dict[str, OpNode] = field(default_factory=dict)
    aliases: dict[str, NodeRef] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    written: frozenset[str] = frozenset()
    """Names of the outputs."""

    def convert(self) -> tuple[OpGraph, dict[str, torch.Tensor]]:
        """The graph, and the constants of forward that became `param:` inputs."""
        _refuse_endless(self.problem, self.program)
        results = self._outputs()
        _name_parts(self.program.graph)
        live = _live_nodes(self.program.graph, results)
        self._refuse_state({node.name for node in live})
        self.written = frozenset(node.name for node in results)
        for node in self.program.graph.nodes:
            if node in live and node.op == "placeholder":
                self._add_leaf(node)
            elif node in live and node.op == "call_function":
                self._add_call(node)
        graph = OpGraph(
            inputs=self.inputs,
            nodes=tuple(self.nodes.values()),
            outputs=tuple(self._reference(node) for node in results),
            input_count=len(self.instance.inputs),
            node_index=dict(self.nodes),
        )
        return graph, self.constants

    def _refuse_state(self, live: set[str]) -> None:
        """Refuse what outlives the call: in-place changes, tensors that forward assigns to the module. A buffer that
        no output is computed from may change: the next call cannot tell."""
        read = {spec.target for spec in self.program.graph_signature.input_specs if spec.arg.name in live}
        # The tracer puts assigned attributes back, hence a call of its own.
        _call(self.instance)
        for name, tensor in named_tensors(self.instance.module).items():
            if self.instance.parameters.get(name, tensor) is not tensor and name in read:
                raise NotYetError(
                    f"{self.problem.path}: forward assigns self.{name}, which outlives the call: not supported "
                    "yet; make it an input and an output"
                )
        # By kind, as releases of torch differ in which of them they list: inputs, buffers, parameters.
        specs = self.program.graph_signature.output_specs
        changed = [spec for spec in specs if spec.kind.name.endswith("_MUTATION")]
        mutated = [spec.target for spec in changed if spec.target in read or not spec.kind.name.startswith("BUFFER")]
        if mutated:
            eval_mode = "use eval mode, " if self.problem.mode == "train" else ""
            raise NotYetError(
                f"{self.problem.path}: forward changes {mutated[0]} in place, which is not supported yet "
                f"(mode {self.problem.mode}); {eval_mode}change a copy (.clone()) or return the new value"
            )

    def _outputs(self) -> list[Node]:
        signature = self.program.graph_signature
        kept = [
            spec.arg
            for spec in signature.output_specs
            if not spec.kind.name.endswith("_MUTATION")
            and not (isinstance(spec.arg, ConstantArgument) and spec.arg.value is None)
        ]
        names = [arg.name for arg in kept if isinstance(arg, TensorArgument)]
        if not names:
            raise _no_tensors(self.problem)
        if len(names) != len(kept):
            raise NotYetError(f"{self.problem.path}: forward returns a Python value beside tensors: not supported yet")
        by_name = {node.name: node for node in self.program.graph.nodes}
        return [by_name[name] for name in names]

    def _add_leaf(self, node: Node) -> None:
        specs = self.program.graph_signature.input_specs
        users = [spec for spec in specs if spec.kind is InputKind.USER_INPUT]
        spec = next(spec for spec in specs if spec.arg.name == node.name)
        if spec.kind is InputKind.USER_INPUT:
            index = users.index(spec)
            given = self.instance.inputs[index]
            scalar = not isinstance(given, torch.Tensor)
            tensor_spec = _spec_of(node.meta["val"] if scalar else given)
            self.inputs[node.name] = GraphInput(f"in{index}", tensor_spec, scalar)
        elif spec.target in self.instance.parameters:
            held = self.instance.parameters[spec.target]
            self.inputs[node.name] = GraphInput(f"param:{spec.target}", _spec_of(held))
        else:
            self._add_constant(node, spec.target)

    def _add_constant(self, node: Node, target: str) -> None:
        """A tensor that forward made: a fill where all elements are equal, else a `param:` input."""
        value = self.program.constants.get(target)
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            raise NotYetError(f"{self.problem.path}: {target} in forward has no value at load time; not supported yet")
        value = value.detach().cpu()
        first = value.reshape(-1)[:1]
        if value.numel() and bool((value == first).all()):
            fill = Canonical("full", (tuple(value.shape), first.item()), {}, "constant")
            self._append(node, fill, _spec_of(value.contiguous()))
            return
        self.constants[target] = value.contiguous()
        self.inputs[node.name] = GraphInput(f"param:{target}", _spec_of(self.constants[target]))

    def _add_call(self, node: Node) -> None:
        value = node.meta["val"]
        if isinstance(value, (tuple, list)):
            return
        if not isinstance(value, torch.Tensor):
            raise _NumberIsStructure(f"{node.target} takes a Python number out of a tensor")
        out = _spec_of(value)
        if node.target is operator.getitem:
            producer, index = node.args
            assert isinstance(producer, Node)
            form = canonical(self._call(producer, out))
            if isinstance(form, Canonical):
                form = Canonical(form.op, form.args, form.kwargs | {"output": index}, "anchor")
        else:
            form = canonical(self._call(node, out))
        if isinstance(form, NodeRef) and node.name in self.written and self._spec(form).strides != out.strides:
            # The operator changes no value, but the order in which this output is written.
            form = Canonical("to_copy", (form,), {"dtype": out.dtype}, "pointwise")
        if isinstance(form, NodeRef):
            self.aliases[node.name] = form
        else:
            self._append(node, form, out)

    def _call(self, node: Node, out: TensorSpec) -> Call:
        schema = node.target._schema  # type: ignore[union-attr]
        positional = tuple(arg.name for arg in schema.arguments if not arg.kwarg_only)
        defaults = {arg.name: arg.default_value for arg in schema.arguments if arg.has_default_value()}
        given = dict(zip(positional, node.args, strict=False)) | dict(node.kwargs)
        values = defaults | pytree.tree_map_only(Node, self._reference, given)
        tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Node)]
        source = self._spec(self._reference(tensors[0])) if tensors else None
        packet = node.target._overloadpacket.__name__  # type: ignore[union-attr]
        return Call(packet, positional, values, defaults, source, out)

    def _append(self, node: Node, form: Canonical, out: TensorSpec) -> None:
        operands = [leaf for leaf in pytree.tree_leaves((form.args, form.kwargs)) if isinstance(leaf, NodeRef)]
        specs = [self._spec(ref) for ref in dict.fromkeys(operands)]
        self.nodes[node.name] = OpNode(
            name=node.name,
            op=form.op,
            pattern=form.pattern,
            args=form.args,
            kwargs=form.kwargs,
            out=out,
            flops=flops_of(form, [self._spec(ref) for ref in operands], out),
            bytes_moved=bytes_moved(form, specs, out),
            source=_user_source(node),
        )

    def _reference(self, node: Node) -> NodeRef:
        return self.aliases.get(node.name, NodeRef(node.name))

    def _spec(self, ref: NodeRef) -> TensorSpec:
        return self.inputs[ref.name].spec if ref.name in self.inputs else self.nodes[ref.name].out


def _name_parts(graph: Any) -> None:
    """Call each result of an operator with several after that operator."""
    for node in graph.nodes:
        if node.target is operator.getitem:
            producer, index = node.args
            node._rename(f"{producer.name}_{index}")


def _live_nodes(graph: Any, results: list[Node]) -> set[Node]:
    live: set[Node] = set()
    pending = list(results)
    while pending:
        node = pending.pop()
        if node not in live:
            live.add(node)
            pending.extend(node.all_input_nodes)
    return live


def _user_source(node: Node) -> str:
    """`file:line` of the innermost frame outside PyTorch and Warpsmith, or an empty text."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    outside = [(file, line) for file, line in frames if not file.startswith((_TORCH, _OURS))]
    return f"{outside[-1][0]}:{outside[-1][1]}" if outside else ""
