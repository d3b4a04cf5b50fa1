"""Window kernels: each way to compute a call is chosen where it should be, and the interpreter agrees with LLVM on all
of them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.planner.support import physical_plan
from tsql.backends import Run
from tsql.backends.explain import pipelines
from tsql.kernels.codegen.kir import parse
from tsql.kernels.codegen.spec import verify
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, DOUBLE, HUGEINT, VARCHAR
from tsql.kernels.operators.window import WindowScan
from tsql.kernels.windows.evaluators import evaluator, needs_codes
from tsql.planner.bind.binder import parse_window

SCHEMA = Schema((Field("i", BIGINT), Field("h", HUGEINT), Field("x", DOUBLE), Field("s", VARCHAR)))
ORDER = (SortKey(Column("i", BIGINT)),)
SLIDING = "ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING"
VARYING = "ROWS BETWEEN i PRECEDING AND 1 FOLLOWING"

WAYS = [
    ("row_number()", "", ""),
    ("lag(s IGNORE NULLS)", "", ""),
    ("first_value(x)", SLIDING, ""),
    ("sum(i)", "", "running"),
    ("median(i)", "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", "running"),
    ("string_agg(s)", "ROWS UNBOUNDED PRECEDING", "running"),
    ("count(DISTINCT s)", "ROWS UNBOUNDED PRECEDING", "running"),
    ("sum(i)", SLIDING, "by removal"),
    ("sum(i)", f"{SLIDING} EXCLUDE TIES", "by removal"),
    ("count(DISTINCT s)", SLIDING, "by removal"),
    ("median(x)", SLIDING, "by removal"),
    ("quantile_disc(s, 0.5)", f"{SLIDING} EXCLUDE GROUP", "by removal"),
    ("approx_count_distinct(i)", SLIDING, "by removal"),
    ("sum(x)", SLIDING, "two stacks"),
    ("sum(h)", SLIDING, "by removal"),
    ("min(i)", SLIDING, "two stacks"),
    ("max(s)", SLIDING, "two stacks"),
    ("min(DISTINCT i)", SLIDING, "two stacks"),
    ("stddev(x)", SLIDING, "two stacks"),
    ("arg_min(s, x)", SLIDING, "two stacks"),
    ("first_value(s ORDER BY x)", SLIDING, "two stacks"),
    ("sum(i)", VARYING, "tree"),
    ("max(s)", f"{SLIDING} EXCLUDE CURRENT ROW", "two stacks"),
    ("min(x)", f"{SLIDING} EXCLUDE TIES", "two stacks"),
    ("max(s)", f"{VARYING} EXCLUDE CURRENT ROW", "tree"),
    ("string_agg(s)", SLIDING, "anew for each frame"),
    ("mode(i)", SLIDING, "by removal"),
    ("mode(s)", "ROWS UNBOUNDED PRECEDING", "by removal"),
    ("mode(i)", f"{SLIDING} EXCLUDE TIES", "anew for each frame"),
    ("mode(i ORDER BY x)", SLIDING, "anew for each frame"),
    ("median(i)", VARYING, "anew for each frame"),
    ("sum(DISTINCT x)", SLIDING, "anew for each frame"),
]


@pytest.mark.parametrize(("call", "frame", "how"), WAYS)
def test_choice(call: str, frame: str, how: str) -> None:
    parsed = parse_window(f"{call} OVER ({frame})" if frame else call, SCHEMA, ORDER)
    assert evaluator("w", parsed, ORDER).how == how


def test_codes_are_computed_only_where_they_are_read() -> None:
    wanted = {
        "mode(i)",
        "mode(s)",
        "count(DISTINCT s)",
        "median(x)",
        "quantile_disc(s, 0.5)",
        "approx_count_distinct(i)",
        "sum(DISTINCT x)",
    }
    for call, frame, _ in WAYS:
        parsed = parse_window(f"{call} OVER ({frame})" if frame else call, SCHEMA, ORDER)
        assert needs_codes(parsed) == (call in wanted and (call != "mode(i)" or "EXCLUDE" not in frame)), call


ROWS = 45


def table(seed: int, rows: int = ROWS) -> pa.Table:
    """Rows with ties and NULLs."""
    source = random.Random(seed)

    def some(values: list[Any]) -> list[Any]:
        return [None if source.random() < 0.2 else source.choice(values) for _ in range(rows)]

    return pa.table(
        {
            "n": pa.array(source.sample(range(rows), rows)),
            "g": pa.array(some([0, 1, 2])),
            "i": pa.array(some(list(range(-9, 9)))),
            "x": pa.array(some([-0.0, 0.0, 0.5, 1.25, float("nan"), -7.0]), pa.float64()),
            "s": pa.array(some(["", "a", "b", "long text of more than sixteen bytes", "é"]), pa.string()),
        }
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partition", ["", "PARTITION BY g "])
@pytest.mark.in_turn(2)
def test_interpreter_agrees(seed: int, partition: str) -> None:
    """The calls with the same frame are computed by one query."""
    sessions = [tsql.connect(threads=1), tsql.connect(backend="interp")]
    for db in sessions:
        db.register("t", table(seed))
    for frame in dict.fromkeys(frame for _, frame, _ in WAYS):
        calls = [(call.replace("(h)", "(i::HUGEINT)"), how) for call, its_frame, how in WAYS if its_frame == frame]
        window = f"{partition}ORDER BY {'g, n' if frame else 'g'} {frame.replace('i PRECEDING', 'n % 5 PRECEDING')}"
        sql = (
            "SELECT n, "
            f"{', '.join(f'{call} OVER ({window.strip()}) AS w{i}' for i, (call, _) in enumerate(calls))} FROM "
            "t ORDER BY n"
        )
        compiled, interpreted = (db.sql(sql).arrow() for db in sessions)
        assert compiled["n"].to_pylist() == interpreted["n"].to_pylist() == list(range(ROWS))
        for i, (call, how) in enumerate(calls):
            assert repr(compiled[f"w{i}"].to_pylist()) == repr(interpreted[f"w{i}"].to_pylist()), (
                f"seed {seed}, {how}: {call} OVER ({window.strip()})"
            )


def test_kernels_are_legal_and_print() -> None:
    db = tsql.connect(threads=1)
    db.register("t", table(0))
    for call, frame, _ in WAYS:
        window = f"PARTITION BY g ORDER BY g, n {frame.replace('i PRECEDING', 'n % 5 PRECEDING')}"
        plan = physical_plan(
            db, f"SELECT {call.replace('(h)', '(i::HUGEINT)')} OVER ({window.strip()}) AS w FROM t", shards=1
        )
        found = [p for p in pipelines(plan, Run(settings=db.settings)) if isinstance(p.source, WindowScan)]
        assert len(found) == 1
        module = found[0].emit().module
        verify(module)
        assert parse(module.text()).text() == module.text()
