"""OpGraph: what a module computes: primitive nodes with shapes, strides, costs and dependencies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip

Pattern = Literal["pointwise", "view", "broadcast", "reduction", "matmul", "scan", "anchor", "constant"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, strides (elements), dtype name (`float32`) and storage offset (elements) of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, strides aside."""
        return self.numel * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class GraphInput:
    """A leaf of the graph that the launcher hands in.

    `ref` is the launch-plan name: `inN` (position among the flat inputs of forward), `param:NAME` (parameter,
    buffer or lifted constant). `scalar` marks a Python number: passed by value, `spec` is 0-d.
    """

    ref: str
    spec: TensorSpec
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class OpNode:
    """One primitive operator.

    `op` is the ATen overload packet name without namespace (`add`, `amax`, `sum`, `mm`, `permute`, `where`,
    ...). `args` holds node names (as `NodeRef`) and literals in the canonical order of
    kernels/canonical.py, `kwargs` likewise; dtypes are names.
    """

    name: str
    op: str
    pattern: Pattern
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: TensorSpec
    flops: int
    bytes_moved: int
    """Bytes read plus written if this node ran alone."""
    source: str = ""
    """File and line of the user's code it came from, where known."""


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A reference to a node or to a graph input, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class OpGraph:
    """Nodes in topological order. `inputs` are keyed by the name that NodeRefs use."""

    inputs: dict[str, GraphInput]
    nodes: tuple[OpNode, ...]
    outputs: tuple[NodeRef, ...]
    input_count: int
    """Number of flat inputs of forward; unused ones have no GraphInput but still occupy `inN`."""
    node_index: dict[str, OpNode] = field(default_factory=dict)
    load_time: frozenset[str] = frozenset()
    """Nodes made of parameters alone that may be computed once, when those are loaded."""
    placed: frozenset[str] = frozenset()
    """Nodes whose results lie within larger tensors: outputs among them are written in their spec's strides."""

    def spec(self, name: str) -> TensorSpec:
        """Shape and strides of a node or input."""
        if name in self.inputs:
            return self.inputs[name].spec
        return self.node_index[name].out

    @property
    def floor_bytes(self) -> int:
        """Every used input read once and every output written once."""
        read = sum(leaf.spec.nbytes for leaf in self.inputs.values())
        return read + sum(self.spec(ref.name).nbytes for ref in self.outputs)

    @property
    def flops(self) -> int:
        """Sum over the nodes."""
        return sum(node.flops for node in self.nodes)
