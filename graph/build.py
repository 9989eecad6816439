"""The search graph: nodes and edges."""

from __future__ import annotations

from typing import Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from warpsmith.graph import nodes
from warpsmith.graph.approval import gate
from warpsmith.graph.state import Context, SearchState

Compiled = CompiledStateGraph[SearchState, Context, SearchState, SearchState]


class Node(Protocol):
    """What a node is."""

    async def __call__(self, state: SearchState, runtime: Runtime[Context]) -> SearchState: ...


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None, *, bound: Context | None = None) -> Compiled:
    """The compiled graph; with a checkpointer it can be drained and resumed. A `bound` one needs no context when it is
    invoked, as servers do that know states alone."""
    graph = StateGraph(SearchState, context_schema=Context if bound is None else None)
    for node in nodes.NODES:
        graph.add_node(node.__name__, node if bound is None else _bound(node, bound))
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", gate, ["propose", "approve", "evaluate", "decide"])
    graph.add_conditional_edges("propose", gate, ["approve", "evaluate", "confirm"])
    graph.add_conditional_edges("write", gate, ["approve", "evaluate", "decide", "confirm"])
    graph.add_conditional_edges("approve", nodes.following, ["propose", "write", "evaluate"])
    graph.add_edge("evaluate", "decide")
    graph.add_conditional_edges("decide", nodes.following, ["propose", "write", "confirm"])
    graph.add_conditional_edges("confirm", nodes.following, ["confirm", "finish"])
    graph.add_edge("finish", END)
    return graph.compile(checkpointer=checkpointer)


def _bound(node: Node, context: Context) -> Node:
    """The node with a context of its own."""

    async def run(state: SearchState, runtime: Runtime[Context]) -> SearchState:
        return await node(state, runtime.override(context=context))

    return run
