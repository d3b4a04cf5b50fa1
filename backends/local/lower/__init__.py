"""Lowering: a physical plan becomes a graph of pipelines, which prints (`text.py`) and runs (`run/execution.py`).

`lower` asks each step's `LocalStep` what it adds to a pipeline and which pipelines it ends. Choices that depend on the
data stay in the graph as alternatives with conditions; `explain analyze` shows which one was taken."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Graph, Lies, Lowering, Node, Pipe, Shape, Way
from tsql.backends.local.lower.lower import lower

__all__ = ["Graph", "Lies", "Lowering", "Node", "Pipe", "Shape", "Way", "lower"]
