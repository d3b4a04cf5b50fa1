"""Every example of the numeric and temporal functions, read as SQL, gives what it says and what DuckDB says."""

from __future__ import annotations

import pytest

from tests.kernels.harness import evaluate
from tests.kernels.oracle import oracle, plain, same
from tsql.kernels.expr.schema import Schema
from tsql.kernels.functions.registry import SCALARS
from tsql.planner.bind.binder import parse_expression

GROUPS = ("numeric", "rounding", "datetime")
OWN = tuple(f"tsql.kernels.functions.datetime.{name}" for name in ("lifetimes", "rounding", "windows"))
"""Modules of functions that DuckDB does not have."""


def examples(group: str) -> dict[str, object]:
    overloads = (f for name in SCALARS.names() for f in SCALARS.overloads[name])
    return {
        sql: value
        for f in overloads
        if f.emit is not None and f.emit.__module__ not in OWN
        if f"{f.emit.__module__}.".startswith(f"tsql.kernels.functions.{group}.")
        for sql, value in f.examples
    }


@pytest.mark.parametrize("group", GROUPS)
def test_examples(group):
    known = examples(group)
    ours = evaluate([parse_expression(sql, Schema(())) for sql in known])
    theirs = oracle(list(known))
    for (sql, expected), mine, other in zip(known.items(), ours, theirs, strict=True):
        (value,), (oracle_value,) = plain(mine), plain(other)
        assert same(value, oracle_value), f"{sql}: {value!r}, but DuckDB says {oracle_value!r}"
        assert expected is None or same(value, expected) or str(value) == expected, (
            f"{sql}: {value!r}, but the example says {expected!r}"
        )
