"""Aggregates at their limits: errors, large groups, the accuracy of sketches, memory, order of arrival."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import TsqlError


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect(threads=2) as session:
        yield session


def rows(db: Any, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(sql).arrow().to_pylist()]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("skewness(x)", "SKEW is out of range"),
        ("kurtosis_pop(x)", "Kurtosis is out of range"),
        ("quantile_cont(x, 1.5)", "QUANTILE can only take parameters in the range"),
        ("quantile_disc(x, -2)", "QUANTILE can only take parameters in the range"),
        ("quantile_disc(x, NULL::DOUBLE)", "must not be NULL"),
        ("approx_quantile(x, -0.5)", "APPROXIMATE QUANTILE can only take parameters in range"),
        ("quantile_cont(x, x)", "must be a constant"),
        ("string_agg(x, x::VARCHAR)", "must be a constant"),
        ("quantile_cont('a'::VARCHAR, 0.5)", "no overload"),
        ("bit_and(x)", "no overload"),
        ("stddev(true)", "no overload"),
    ],
)
def test_errors(db: Any, expression: str, message: str) -> None:
    db.register("t", pa.table({"x": pa.array([1e308, -1e308, 1e308, 5.0], pa.float64())}))
    with pytest.raises(TsqlError, match=message):
        db.sql(f"SELECT {expression} FROM t").arrow()


def test_skewness_fails_only_in_groups_that_do(db: Any) -> None:
    db.register("t", pa.table({"g": [0] * 3 + [1] * 3, "x": [1e308, -1e308, 1e308, 1.0, 2.0, 4.0]}))
    assert len(rows(db, "SELECT skewness(x) FROM t WHERE g = 1")) == 1
    with pytest.raises(TsqlError, match="SKEW"):
        rows(db, "SELECT g, skewness(x) FROM t GROUP BY g")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("distinct", [0, 7, 1000, 1024, 1025, 3000, 40000])
def test_approx_count_distinct(distinct: int, shards: int) -> None:
    values = list(range(distinct)) * 2
    random.Random(1).shuffle(values)
    with tsql.connect(threads=2, shards=shards) as db:
        db.register(
            "t",
            pa.table({"x": pa.array(values, pa.int64()), "s": pa.array([f"text {v}" for v in values], pa.string())}),
        )
        for found in rows(db, "SELECT approx_count_distinct(x), approx_count_distinct(s) FROM t")[0]:
            assert found == distinct if distinct <= 1000 else abs(found / distinct - 1) < 0.03


def test_sketches_do_not_depend_on_sharding() -> None:
    values = pa.table({"x": [v * 7919 % 20011 for v in range(30000)]})
    found = set()
    for shards in (1, 2, 5):
        with tsql.connect(threads=2, shards=shards) as db:
            db.register("t", values)
            found.add(rows(db, "SELECT approx_count_distinct(x) FROM t")[0])
    assert len(found) == 1


@pytest.mark.parametrize("order", ["ascending", "descending", "equal", "saw", "random"])
def test_selection_of_many_values(db: Any, order: str) -> None:
    count = 5001
    rng = random.Random(2)
    make = {
        "ascending": lambda i: i,
        "descending": lambda i: -i,
        "equal": lambda i: 3,
        "saw": lambda i: i % 17,
        "random": lambda i: rng.randrange(10**6),
    }[order]
    values = [make(i) for i in range(count)]
    in_order = sorted(values)
    db.register(
        "t",
        pa.table(
            {
                "x": pa.array(values, pa.int64()),
                "s": pa.array([f"{v:+08d}" for v in values], pa.string()),
                "h": pa.array(values, pa.uint64()) if min(values) >= 0 else pa.array(values, pa.int64()),
            }
        ),
    )
    got = rows(
        db, "SELECT median(x), quantile_disc(x, 0.1), quantile_disc(x, 1), median(h), quantile_disc(s, 0.1) FROM t"
    )[0]
    texts = sorted(f"{v:+08d}" for v in values)
    assert got == (in_order[2500], in_order[500], in_order[-1], in_order[2500], texts[500])


def test_string_agg_of_many_rows_is_in_order() -> None:
    ids = list(range(20000))
    random.Random(3).shuffle(ids)
    table = pa.table({"id": ids, "s": [str(i) for i in ids]})
    for shards in (1, 4):
        with tsql.connect(threads=2, shards=shards, batch_rows=1000) as db:
            db.register("t", table)
            assert rows(db, "SELECT string_agg(s, ',' ORDER BY id), string_agg(s, ',') FROM t")[0] == (
                ",".join(map(str, range(20000))),
                ",".join(map(str, ids)),
            )


def test_picks_do_not_depend_on_sharding() -> None:
    rng = random.Random(4)
    table = pa.table(
        {
            "g": [rng.randrange(50) for _ in range(20000)],
            "id": range(20000),
            "v": [rng.randrange(5) for _ in range(20000)],
        }
    )
    sql = (
        "SELECT g, first(id), last(id), any_value(id), arg_min(id, v), arg_max(id, v), mode(v), last(id "
        "ORDER BY v) FROM t GROUP BY g ORDER BY g"
    )
    answers = []
    for settings in ({"shards": 1}, {"shards": 3, "batch_rows": 500}, {"shards": 5}):
        with tsql.connect(threads=2, **settings) as db:
            db.register("t", table)
            answers.append(rows(db, sql))
    assert answers[0] == answers[1] == answers[2]
    groups: dict[int, list[tuple[int, int]]] = {}
    for g, i, v in zip(*(table[n].to_pylist() for n in ("g", "id", "v")), strict=True):
        groups.setdefault(g, []).append((i, v))
    for g, first, last, any_value, low, high, _, ordered in answers[0]:
        group = groups[g]
        assert (first, last, any_value) == (group[0][0], group[-1][0], group[0][0])
        smallest, largest = min(v for _, v in group), max(v for _, v in group)
        assert low == next(i for i, v in group if v == smallest)
        assert high == ordered == next(i for i, v in group if v == largest)


def test_memory_of_lists_is_limited() -> None:
    with tsql.connect(threads=2, memory_limit="8MB") as db:
        db.register("t", pa.table({"x": pa.array(range(3_000_000), pa.int64())}))
        with pytest.raises(TsqlError, match="(?i)memory"):
            db.sql("SELECT median(x) FROM t").arrow()
