"""Every kind of join, built on either side, against DuckDB: logical joins over random tables with NULLs and
duplicates."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends import Run, Settings
from tsql.backends.interp import InterpreterBackend
from tsql.backends.local import LocalBackend
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner import make_plan
from tsql.planner.choose import joins
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.predicates import conjunction
from tsql.planner.physical.planfile import parse_plan

CONDITIONS = {
    "key": ("ak = bk", [("=", "ak", "bk")]),
    "two keys": ("ak = bk AND a_s = b_s", [("=", "ak", "bk"), ("=", "a_s", "b_s")]),
    "NULL equals NULL": (
        "ak = bk AND a_s IS NOT DISTINCT FROM b_s",
        [("=", "ak", "bk"), ("is_not_distinct_from", "a_s", "b_s")],
    ),
    "key and rest": ("ak = bk AND av < bv", [("=", "ak", "bk"), ("<", "av", "bv")]),
    "no key": ("av < bv", [("<", "av", "bv")]),
    "product": ("true", []),
}
Row = tuple[object, ...]


def table(rows: int, values: int, prefix: str, chance: random.Random) -> pa.Table:
    def number() -> int | None:
        return None if chance.random() < 0.15 else chance.randrange(values)

    def text() -> str | None:
        return None if chance.random() < 0.15 else chance.choice(["a", "bb", "ccc", "d" * 20, ""])

    return pa.table(
        {
            f"{prefix}k": pa.array([number() for _ in range(rows)], pa.int64()),
            f"{prefix}v": pa.array([number() for _ in range(rows)], pa.int32()),
            f"{prefix}_s": pa.array([text() for _ in range(rows)], pa.string()),
        }
    )


class Case:
    """Two tables, in our engine and in DuckDB."""

    def __init__(self, seed: int, stored: bool, sizes: tuple[int, int]):
        print(f"seed {seed}")
        chance = random.Random(seed)
        self.tables = {
            "a": table(sizes[0], chance.choice([3, 20, 100]), "a", chance),
            "b": table(sizes[1], chance.choice([3, 20, 100]), "b", chance),
        }
        self.db, self.oracle = tsql.connect(threads=2), empty_duckdb()
        for name, data in self.tables.items():
            self.db.register(f"{name}_arrow", data)
            self.oracle.register(name, data)
            if stored:
                self.db.sql(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
            else:
                self.db.register(name, data)

    def scan(self, name: str) -> logical.Node:
        source = self.db.catalog.lookup(name)
        return logical.Scan(name, source, tuple(source.schema.names))

    def join(self, kind: str, parts: list[tuple[str, str, str]]) -> logical.Join:
        a, b = self.scan("a"), self.scan("b")
        columns = {f.name: Column(f.name, f.type, f.nullable) for f in (*a.schema, *b.schema)}
        calls: list[Expr] = [Call(op, (columns[x], columns[y]), BOOLEAN) for op, x, y in parts]
        return logical.Join(kind, a, b, conjunction(calls), "m" if kind == "mark" else None)

    def expected(self, kind: str, condition: str) -> list[Row]:
        match kind:
            case "semi" | "anti":
                sql = (
                    f"SELECT * FROM a WHERE {'NOT' if kind == 'anti' else ''} EXISTS (SELECT 1 FROM b WHERE "
                    f"{condition})"
                )
            case "mark":
                some = f"EXISTS (SELECT 1 FROM b WHERE {condition})"
                open_ends = f"EXISTS (SELECT 1 FROM b WHERE ({condition}) IS NULL)"
                sql = f"SELECT *, CASE WHEN {some} THEN true WHEN {open_ends} THEN NULL ELSE false END FROM a"
            case "single":
                sql = f"SELECT * FROM a LEFT JOIN b ON {condition}"
            case _:
                sql = f"SELECT * FROM a {kind} JOIN b ON {condition}"
        return self.oracle.execute(sql).fetchall()

    def has_two_partners(self, condition: str) -> bool:
        sql = (
            "SELECT max(n) > 1 FROM (SELECT count(*) AS n FROM (SELECT row_number() OVER () AS r, * FROM a) "
            f"JOIN b ON {condition} GROUP BY r)"
        )
        return bool(self.oracle.execute(sql).fetchone()[0])


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple((value is not None, str(value)) for value in row))


def choices() -> Iterator[tuple[str, str]]:
    for kind in logical.JOIN_KINDS:
        for build in ("left", "right"):
            if not (build == "left" and kind in ("mark", "single")):
                yield kind, build


@pytest.fixture(
    scope="module",
    params=[
        (1, False, (60, 40)),
        (2, True, (40, 300)),
        (3, True, (300, 50)),
        (4, False, (0, 20)),
        (5, True, (20, 0)),
        (6, False, (1, 1)),
    ],
)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(*request.param)


@pytest.mark.parametrize(
    "settings",
    [Settings(threads=1, shards=1), Settings(threads=2, shards=3), Settings(threads=2, shards=2, equal_hashes=True)],
    ids=["one", "shards", "equal hashes"],
)
@pytest.mark.parametrize(("kind", "build"), list(choices()))
@pytest.mark.in_turn(6)
def test_join(case: Case, kind: str, build: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "build_side", lambda node: build)
    for name, (text, parts) in CONDITIONS.items():
        node = case.join(kind, parts)
        plan = make_plan(logical.Output(node, node.schema.names, node.schema.names), settings)
        assert parse_plan(plan.text(), case.db.catalog) == plan, name
        try:
            got = [
                tuple(row.values()) for batch in LocalBackend().run(plan, Run(settings)) for row in batch.to_pylist()
            ]
        except ExecutionError as error:
            assert "More than one row" in error.message and kind == "single" and case.has_two_partners(text), name
            continue
        assert ordered(got) == ordered(case.expected(kind, text)), name
        assert kind != "single" or not case.has_two_partners(text), name


@pytest.mark.parametrize(("kind", "build"), list(choices()))
def test_interpreter(kind: str, build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "build_side", lambda node: build)
    case = Case(7, True, (9, 7))
    node = case.join(kind, CONDITIONS["key and rest"][1])
    settings = Settings(threads=1, shards=2)
    plan = make_plan(logical.Output(node, node.schema.names, node.schema.names), settings)
    got = [tuple(row.values()) for batch in InterpreterBackend().run(plan, Run(settings)) for row in batch.to_pylist()]
    assert ordered(got) == ordered(case.expected(kind, CONDITIONS["key and rest"][0]))


@pytest.mark.parametrize("kind", ["inner", "left", "full", "semi", "anti"])
@pytest.mark.parametrize("build", ["left", "right"])
def test_both_sides_placed(kind: str, build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of shards of their own: both sides are redistributed by the keys."""
    monkeypatch.setattr(joins, "build_side", lambda node: build)
    case = Case(8, False, (200, 90))
    node = case.join(kind, CONDITIONS["two keys"][1])
    settings = Settings(threads=2, shards=5)
    whole = make_plan(logical.Output(node, node.schema.names, node.schema.names), settings).text()
    moved = "left" if build == "left" else "right"
    lines = []
    for line in whole.split("\n"):
        if "broadcast" in line:
            continue
        if "hash_join" in line:
            for side, keys in (("a", "ak, a_s"), ("b", "bk, b_s")):
                lines.append(f"{side}_keyed = rekey {side} key=({keys})")
                lines.append(f"{side}_placed = redistribute {side}_keyed scope=local shards=5")
            line = line.replace("hash_join a everywhere", "hash_join a_placed b_placed").replace(
                "hash_join everywhere b", "hash_join a_placed b_placed"
            )
        lines.append(line)
    assert any("a_placed b_placed" in line and f"build={moved}" in line for line in lines), whole
    plan = parse_plan("\n".join(lines), case.db.catalog)
    got = [tuple(row.values()) for batch in LocalBackend().run(plan, Run(settings)) for row in batch.to_pylist()]
    assert ordered(got) == ordered(case.expected(kind, CONDITIONS["two keys"][0]))


def test_early_joins_by_what_a_join_brings() -> None:
    """A key that comes from the table of the join before, and a filter on such a column, cannot be decided from the
    scan."""
    db = tsql.connect(threads=2)
    db.execute("CREATE TABLE a AS SELECT i AS a, i % 5 AS x FROM range(20) AS r(i)")
    db.execute("CREATE TABLE b AS SELECT i AS b, i % 3 AS y FROM range(4) AS r(i)")
    db.execute("CREATE TABLE c AS SELECT i AS c FROM range(2) AS r(i)")
    text = """plan version 1
target local shards=1

a    = scan a columns=(a, x)
b    = scan b columns=(b, y)
c    = scan c columns=(c)
ab   = hash_join a b kind=inner on=(x = b) build=right early=yes
kept = filter ab how=select where=(y < 2)
abc  = hash_join kept c kind=inner on=(y = c) build=right early=yes
output abc (a, b, c)
"""
    expected = {(a, a % 5, (a % 5) % 3) for a in range(20) if a % 5 < 4 and (a % 5) % 3 < 2}
    for plan in (
        text,
        text.replace("kept = filter ab how=select where=(y < 2)\n", "").replace("hash_join kept", "hash_join ab"),
    ):
        assert set(tsql.load_plan_text(plan).run(db).fetchall()) == expected


SHARED_BROADCAST = """plan version 1
target local shards=2

first  = scan a columns=(k)
second = scan a columns=(k)
rows   = scan b columns=(j, y)
copies = broadcast rows scope=local
one    = hash_join first copies kind=inner on=(k = j) build=right
other  = hash_join second copies kind=left on=(k = j) build=right
both   = union one other
all    = gather both
output all (k, y)
"""


@pytest.mark.parametrize("settings", [{}, {"spill_after": 1}], ids=["", "spill"])
def test_two_joins_build_of_one_broadcast(settings: dict[str, int]) -> None:
    """Each of them sees all rows."""
    query = "SELECT k, y FROM a JOIN b ON k = j UNION ALL SELECT k, y FROM a LEFT JOIN b ON k = j"
    with tsql.connect(threads=2, **settings) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute("CREATE TABLE a AS SELECT range AS k FROM range(1000)")
            engine.execute("CREATE TABLE b AS SELECT range * 2 AS j, range AS y FROM range(400)")
        found = tsql.load_plan_text(SHARED_BROADCAST).run(db).fetchall()
        assert Counter(found) == Counter(duck.sql(query).fetchall())
