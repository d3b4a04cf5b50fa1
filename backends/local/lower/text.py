"""Graph of pipelines → text: the output of `explain pipelines`. Nothing runs for it.

Each pipeline is a paragraph, in execution order: its name, its source, its operators, its sink. Below the sink are the
alternatives that a run chooses from. A pipeline that may not run says when it does."""

from __future__ import annotations

from collections.abc import Iterator

from tsql.backends.local.lower.graph import Graph, Node, Pipe, pipes_of


def graph_text(graph: Graph) -> str:
    """The text of a graph."""
    return "\n\n".join("\n".join(_lines(node, pipe)) for node, pipe in _pipelines(graph)) + "\n"


def _pipelines(graph: Graph) -> Iterator[tuple[Node, Pipe]]:
    for node in graph.nodes:
        for pipe in pipes_of(node, node is graph.root):
            yield node, pipe


def _lines(node: Node, pipe: Pipe) -> Iterator[str]:
    name = f"{node.step.name} {pipe.role}".strip()
    yield f"{name}:  # if {pipe.when}" if pipe.when else f"{name}:"
    for line in _path(node, pipe):
        yield f"  {line}"
    yield f"  {pipe.sink}"
    for way in pipe.ways:
        yield f"    - {way}"


def _path(node: Node, pipe: Pipe) -> Iterator[str]:
    """The source of a pipeline and the operators its rows pass."""
    if pipe.input is not None:
        yield from _rows(node.inputs[pipe.input])
    elif pipe.source:
        yield pipe.source
    else:
        yield from _rows(node, own=True)


def _rows(node: Node, own: bool = False) -> list[str]:
    """How the rows of a node reach its user, starting from where they are stored. `own`: the user is the node
    itself."""
    if node.shape.source:
        return [node.shape.source]
    if node.is_shared and not own:
        return [f"rows of {node.step.name}"]
    return [*_rows(node.inputs[node.shape.over]), *node.shape.operators]
