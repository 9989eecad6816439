"""The search graph: nodes and edges."""

from __future__ import annotations

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from warpsmith.graph import nodes
from warpsmith.graph.approval import gate
from warpsmith.graph.state import Context, SearchState

Compiled = CompiledStateGraph[SearchState, Context, SearchState, SearchState]


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None) -> Compiled:
    """The compiled graph; with a checkpointer it can be drained and resumed."""
    graph = StateGraph(SearchState, context_schema=Context)
    for node in nodes.NODES:
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", gate, ["propose", "approve", "evaluate", "decide"])
    graph.add_conditional_edges("propose", gate, ["approve", "evaluate", "confirm"])
    graph.add_conditional_edges("write", gate, ["approve", "evaluate", "decide"])
    graph.add_conditional_edges("approve", nodes.following, ["propose", "write", "evaluate"])
    graph.add_edge("evaluate", "decide")
    graph.add_conditional_edges("decide", nodes.following, ["propose", "write", "confirm"])
    graph.add_conditional_edges("confirm", nodes.following, ["confirm", "finish"])
    graph.add_edge("finish", END)
    return graph.compile(checkpointer=checkpointer)
