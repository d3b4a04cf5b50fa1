"""Graph of pipelines → text: what `explain pipelines` prints. Nothing runs for it.

A paragraph for each pipeline, in the order in which they run: its name, its source, the operators on the way, its sink.
Under the sink are the ways among which a run chooses; a pipeline that may not run says when it does.
"""

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
    """The source of a pipeline and the operators that its rows pass."""
    if pipe.input is not None:
        yield from _rows(node.inputs[pipe.input])
    elif pipe.source:
        yield pipe.source
    else:
        yield from _rows(node, own=True)


def _rows(node: Node, own: bool = False) -> list[str]:
    """How the rows of a node come to its user: from where they lie. `own`: to what the node does with them itself."""
    if node.shape.source:
        return [node.shape.source]
    if node.is_shared and not own:
        return [f"rows of {node.step.name}"]
    return [*_rows(node.inputs[node.shape.over]), *node.shape.operators]
