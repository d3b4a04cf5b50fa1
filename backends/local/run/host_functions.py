"""Steps with host functions: the arguments are collected, the functions are computed chunk by chunk, and the results
become columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tsql.backends import Run
from tsql.backends.local.run import host_calls
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import library_chunk
from tsql.backends.local.run.rows import Rows
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Call, Column, Expr, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.functions.host import innermost, replace_calls
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.step import Step


class HostFunctions:
    """Replaces host functions in expressions before kernels are made."""

    def __init__(self, rows: Rows, run: Run):
        self.rows, self.run = rows, run

    def calls(self, step: Step, flow: Flow, expressions: tuple[Expr, ...]) -> tuple[Flow, tuple[Expr, ...]]:
        """Compute host functions batch by batch. Returns the expressions with columns in their place."""
        while calls := innermost(expressions):
            names = {call: f"#host{len(flow.schema)}_{i}" for i, call in enumerate(calls)}
            flow = self._columns(step, flow, names)
            expressions = tuple(replace_calls(e, names) for e in expressions)
        return flow, expressions

    def _columns(self, step: Step, flow: Flow, names: dict[Call, str]) -> Flow:
        columns = columns_of(flow.schema)
        if flow.data.numbered:
            columns = (*columns, OutputColumn(POSITION, Column(POSITION, BIGINT, False), False))
        arguments, places = host_calls.arguments(list(names))
        extra = tuple(OutputColumn(f"#argument{i}", e, True, True) for i, e in enumerate(arguments))
        lists = self.rows.collect(step, flow, (*columns, *extra), f"arguments {len(flow.schema)}")
        added = tuple(OutputColumn(n, Column(n, call.type)) for call, n in names.items())
        store = self.rows.spill.store(f"{step.name} results")

        def computed(chunk: AnyChunk) -> AnyChunk:
            self.run.check()
            arrays = chunk.arrays
            values = arrays[len(columns) :]
            results = [
                host_calls.compute(call, places[i], values, chunk.rows, self.run.parameters)
                for i, call in enumerate(names)
            ]
            made = library_chunk(chunk.order, results, chunk.rows, self.rows.shared)
            made.arrays, made.bytes = arrays[: len(columns)] + results, made.bytes + chunk.bytes
            return store.keep([made])[0]

        for chunks in lists:
            for number, chunk in enumerate(chunks):
                chunks[number] = computed(chunk)
        fields = Schema((*flow.schema.fields, *(Field(c.name, c.type) for c in added)))
        result = self.rows.chunk_flow((*columns, *added), lists, flow)
        result.schema = fields
        return result

    def arguments(self, step: Aggregate, flow: Flow) -> tuple[Flow, Any, Any]:
        """An aggregate's keys and arguments without host functions."""
        expressions = [e for _, e in step.by]
        for _, call in step.calls:
            expressions += call.expressions()
        flow, rewritten = self.calls(step, flow, tuple(expressions))
        if all(a is b for a, b in zip(expressions, rewritten, strict=True)):
            return flow, step.by, step.calls
        left = list(rewritten)
        by = tuple((n, left.pop(0)) for n, _ in step.by)
        calls = []
        for name, call in step.calls:
            args = tuple(left.pop(0) for _ in call.args)
            condition = left.pop(0) if call.filter is not None else None
            order = tuple(SortKey(left.pop(0), k.descending, k.nulls_first) for k in call.order)
            calls.append((name, replace(call, args=args, filter=condition, order=order)))
        return flow, by, tuple(calls)
