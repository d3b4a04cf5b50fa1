"""Lifetimes in whole queries: what is shown, what is refused and how, nesting, and tables that say their time
themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.temporal.constructs import tables
from tests.temporal.constructs.lifetimes import MORE, PERIODS, living
from tests.temporal.data import ALL_SHAPES, assert_same_rows, selected, to_rows
from tests.temporal.live.lives import ask, rows_of
from tests.temporal.reference.lifetimes import chop, clip, content, extend, lifetime, points, quantize, slide
from tests.temporal.reference.rows import SECOND, Rows, count, equal, greatest, group_by, total
from tests.temporal.reference.snapshot import (
    aggregate,
    anti_join,
    coalesce,
    distinct,
    inner_join,
    left_join,
    per_snapshot,
    same_snapshots,
    union_all,
)

LIFE = ("valid_from", "valid_to")
T = "LIFETIME(t, start => s, end => e)"


@pytest.fixture(scope="module")
def db():
    with tsql.connect(threads=2) as session:
        session.sql(
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-05'), "
            "(1, TIMESTAMP '2024-01-03', NULL), "
            "(2, TIMESTAMP '2024-01-02', TIMESTAMP '2024-01-03')) v(k, s, e)"
        )
        session.sql("CREATE TABLE p AS SELECT 1 AS k, 'x' AS name")
        yield session


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (f"SELECT * FROM {T}", "k s e valid_from valid_to"),
        (f"SELECT valid_to, k FROM {T}", "valid_to k valid_from"),
        (f"SELECT k, valid_from AS a, valid_to AS b FROM {T}", "k a b"),
        (f"SELECT k, valid_to - valid_from AS long FROM {T}", "k long valid_from valid_to"),
        (f"SELECT l.k, l.valid_from AS own FROM {T} l JOIN {T} r ON l.k = r.k", "k own valid_from valid_to"),
        (f"SELECT * FROM (SELECT valid_from, k FROM {T}) q", "k valid_from valid_to"),
        (f"WITH q(a) AS (SELECT k FROM {T}) SELECT * FROM q", "a valid_from valid_to"),
        (f"SELECT * FROM (SELECT k FROM {T}) x(a) JOIN p ON p.k = a", "a k name valid_from valid_to"),
        (f"SELECT k, count(*) AS n FROM {T} GROUP BY k", "k n valid_from valid_to"),
        (
            (
                "SELECT * FROM LIFETIME((SELECT k, s AS valid_from, e AS valid_to FROM t), start => "
                "valid_from, end => valid_to)"
            ),
            "k valid_from valid_to",
        ),
        (f"SELECT k FROM {T} UNION SELECT k FROM p", "k valid_from valid_to"),
        (f"SELECT x.k, x.s FROM {T} x", "k s valid_from valid_to"),
        (f"SELECT t.k FROM {T}", "k valid_from valid_to"),
    ],
)
def test_columns_of_results(db, query: str, names: str) -> None:
    assert " ".join(db.sql(query).arrow().schema.names) == names


REFUSED = [
    (
        "SELECT * FROM SHIFT(t, INTERVAL '1 day')",
        "SHIFT(",
        "SHIFT needs a temporal relation: this one has no lifetimes",
        "SHIFT(LIFETIME(t, start => ts",
    ),
    ("SELECT * FROM LIFETIME(t)", "LIFETIME", "LIFETIME needs start, or a table with a PERIOD", "start => ts"),
    ("SELECT * FROM LIFETIME(t, start => k)", "k)", "start of LIFETIME is a time, not INTEGER", "to_timestamp"),
    (
        "SELECT * FROM LIFETIME(t, start => s, duration => k)",
        "k)",
        "duration of LIFETIME is an interval, not INTEGER",
        "INTERVAL",
    ),
    ("SELECT * FROM SLIDE(t, x, INTERVAL '1 day')", "x,", 'column "x" does not exist', None),
    (f"SELECT * FROM CHOP({T}, k * INTERVAL '1 day')", "k *", "size of CHOP is a constant interval", "INTERVAL"),
    (
        f"SELECT count(*) OVER () FROM {T}",
        "count",
        "window functions (OVER) over a temporal relation stand in QUALIFY only",
        "CREATE TABLE",
    ),
    (
        f"SELECT k, row_number() OVER (ORDER BY k) AS n FROM {T} QUALIFY n = 1",
        "row_number",
        "window functions (OVER) over a temporal relation stand in QUALIFY only",
        "QUALIFY row_number() OVER",
    ),
    (
        f"SELECT * FROM (SELECT k FROM {T} LIMIT 10%) q",
        "10%",
        "LIMIT in a subquery over a temporal relation takes a constant number of rows",
        "at the end of the whole query",
    ),
    (
        f"SELECT * FROM {T} l CLIP JOIN t ON l.k = t.k",
        "t ON",
        "CLIP JOIN needs the time of its right rows, which have several: s, e",
        "LIFETIME",
    ),
    (f"SELECT DISTINCT ON (k) * FROM {T}", "k)", "DISTINCT ON over a temporal relation is not supported", "group by"),
    (
        f"SELECT DISTINCT k FROM {T} ORDER BY s",
        "s",
        "ORDER BY of SELECT DISTINCT over a temporal relation takes what the select list has",
        None,
    ),
    (
        f"SELECT l.valid_from FROM {T} l JOIN {T} r ON l.k = r.k",
        "l.valid",
        '"valid_from" of the select list is not that of the result',
        "AS",
    ),
    (f"SELECT 1 AS valid_to FROM {T}", "1", '"valid_to" of the select list is not that of the result', "AS"),
    (
        f"SELECT * FROM t CLIP JOIN {T} r ON t.k = r.k",
        "CLIP",
        "CLIP JOIN needs a temporal relation on its left side",
        "LIFETIME",
    ),
    (f"SELECT * FROM {T} l CLIP JOIN p ON l.k = p.k", "p ON", "CLIP JOIN needs the time of its right rows", "LIFETIME"),
    (
        "SEQUENCED VALIDTIME SELECT * FROM t",
        "SEQUENCED",
        "SEQUENCED VALIDTIME needs a table with a PERIOD, or a stream",
        "PERIOD FOR",
    ),
    (
        f"SELECT (SELECT count(*) FROM {T}) FROM p",
        "(SELECT",
        "a subquery over a temporal relation stands in WHERE",
        "join",
    ),
    (
        f"SELECT k FROM {T} x WHERE k = 1 OR EXISTS (SELECT 1 FROM {T} y WHERE y.k = x.k)",
        "EXISTS",
        "a subquery over a temporal relation stands in WHERE",
        "join",
    ),
    (
        f"SELECT k FROM {T} WHERE k NOT IN (SELECT k FROM {T})",
        "k NOT",
        "a subquery over a temporal relation stands in WHERE",
        "join",
    ),
    (
        f"SELECT 1 FROM {T} a LEFT JOIN {T} b ON a.k = b.k AND EXISTS (SELECT 1 FROM p WHERE p.k = a.k)",
        "a.k = b",
        "a subquery in the condition of a join",
        "WHERE",
    ),
    (
        f"UPDATE p SET name = 'y' FROM {T} x WHERE x.k = p.k",
        "UPDATE",
        "UPDATE or DELETE cannot depend on a temporal relation",
        "CREATE TABLE",
    ),
    (
        f"DELETE FROM p WHERE EXISTS (SELECT 1 FROM {T} x WHERE x.k = p.k)",
        "DELETE",
        "UPDATE or DELETE cannot depend on a temporal relation",
        "CREATE TABLE",
    ),
    (
        f"WITH RECURSIVE r AS (SELECT k FROM {T} UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT * FROM r",
        "r AS",
        "a recursive query over temporal relations",
        None,
    ),
]


@pytest.mark.parametrize(("query", "place", "message", "hint"), REFUSED, ids=[message for _, _, message, _ in REFUSED])
def test_refused(db, query: str, place: str, message: str, hint: str | None) -> None:
    with pytest.raises(tsql.BindError) as caught:
        db.sql(query).arrow()
    assert caught.value.message.startswith(message)
    assert caught.value.position is not None
    at = query[caught.value.position :]
    assert (
        at.startswith(place) or query[: caught.value.position].rstrip().endswith(place) or place in at[: len(place) + 8]
    ), at
    assert (hint is None) == (caught.value.hint is None)
    if hint is not None:
        assert hint in caught.value.hint


def test_open_lifetimes_are_not_chopped(db) -> None:
    query = f"SELECT * FROM CHOP({T}, INTERVAL '1 day')"
    with pytest.raises(tsql.ExecutionError, match="CHOP of an open lifetime: give it an end first") as caught:
        db.sql(query).arrow()
    assert caught.value.position == query.index("CHOP")
    assert db.sql(f"SELECT * FROM CHOP(CLIP({T}, INTERVAL '2 days'), INTERVAL '1 day')").arrow().num_rows == 5


def test_order_and_limit_act_on_finished_rows(db) -> None:
    """An open end is NULL, which comes last in both directions; LIMIT cuts the merged rows."""
    rows = rows_of(db.sql(f"SELECT DISTINCT k FROM {T} ORDER BY valid_to DESC, k LIMIT 1").arrow())
    assert [row["k"] for row in rows] == [2]
    rows = rows_of(db.sql(f"SELECT k, count(*) AS n FROM {T} GROUP BY k ORDER BY valid_from DESC, k LIMIT 2").arrow())
    assert [(row["k"], row["n"]) for row in rows] == [(1, 1), (1, 2)]


NESTED: dict[str, tuple[str, Any]] = {
    "an aggregate over an aggregate": (
        f"SELECT max(n) AS peak FROM (SELECT k, count(*) AS n FROM {PERIODS} GROUP BY k)",
        lambda t: aggregate(aggregate(living(t), ("k",), n=count), (), peak=greatest("n")),
    ),
    "an aggregate over a join over an aggregate": (
        f"WITH busy AS (SELECT k, count(*) AS n FROM {PERIODS} GROUP BY k) "
        f"SELECT b.n, count(*) AS pairs FROM busy b JOIN {MORE} m ON b.k = m.k WHERE m.v > 0 GROUP BY b.n",
        lambda t: aggregate(
            inner_join(aggregate(living(t), ("k",), n=count), [r for r in living(t, "more") if r["v"] > 0], equal("k")),
            ("n",),
            pairs=count,
        ),
    ),
    "a result that is not shown": (
        f"SELECT k FROM {PERIODS} GROUP BY k HAVING count(*) > 1",
        lambda t: coalesce(selected([r for r in aggregate(living(t), ("k",), n=count) if r["n"] > 1], "k", *LIFE)),
    ),
    "an expression of a result": (
        f"SELECT k, count(*) > 2 AS many FROM {PERIODS} GROUP BY k",
        lambda t: coalesce(
            [{"k": r["k"], "many": r["n"] > 2} | selected([r], *LIFE)[0] for r in aggregate(living(t), ("k",), n=count)]
        ),
    ),
    "a set operation of aggregates": (
        f"SELECT k, count(*) AS n FROM {PERIODS} GROUP BY k UNION ALL SELECT v, sum(id)::BIGINT FROM {MORE} GROUP BY v",
        lambda t: union_all(
            aggregate(living(t), ("k",), n=count),
            [
                {"k": r["v"], "n": r["n"]} | selected([r], *LIFE)[0]
                for r in aggregate(living(t, "more"), ("v",), n=total("id"))
            ],
        ),
    ),
    "functions of functions": (
        (
            f"SELECT id FROM CHOP(EXTEND(CLIP({PERIODS}, INTERVAL '20 seconds'), INTERVAL '3 seconds'), "
            "INTERVAL '5 seconds', INTERVAL '1 second')"
        ),
        lambda t: selected(chop(extend(clip(living(t), 20 * SECOND), 3 * SECOND), 5 * SECOND, SECOND), "id", *LIFE),
    ),
    "what a correlated aggregate finds": (
        (
            f"SELECT id FROM {PERIODS} p WHERE EXISTS (SELECT 1 FROM (SELECT k, count(*) AS n FROM {MORE} "
            "GROUP BY k) m WHERE m.k = p.k AND m.n > 1)"
        ),
        lambda t: selected(
            [
                row
                for one in living(t)
                for row in coalesce(
                    inner_join(
                        [one],
                        selected([m for m in aggregate(living(t, "more"), ("k",), n=count) if m["n"] > 1], "k", *LIFE),
                        equal("k"),
                    )
                )
            ],
            "id",
            *LIFE,
        ),
    ),
    "a lateral aggregate": (
        f"SELECT p.id, m.n FROM {PERIODS} p, LATERAL (SELECT count(*) AS n FROM {MORE} o WHERE o.k = p.k) m",
        lambda t: selected(
            inner_join(living(t), aggregate(living(t, "more"), ("k",), n=count), equal("k")), "id", "n", *LIFE
        ),
    ),
    "an aggregate over an outer join": (
        f"SELECT count(m.id) AS matched, count(*) AS n FROM {PERIODS} p LEFT JOIN {MORE} m ON p.k = m.k",
        lambda t: aggregate(
            left_join(
                living(t),
                [{"k": r["k"], "w": r["id"]} | selected([r], *LIFE)[0] for r in living(t, "more")],
                equal("k"),
                ("w",),
            ),
            (),
            matched=lambda rows: sum(1 for r in rows if r["w"] is not None),
            n=count,
        ),
    ),
    "grouping sets": (
        f"SELECT k, v, grouping(k, v) AS g, count(*) AS n FROM {PERIODS} GROUP BY GROUPING SETS ((k, v), (v), ())",
        lambda t: [
            {"k": r.get("k"), "v": r.get("v"), "g": (0 if "k" in keys else 2) + (0 if "v" in keys else 1), "n": r["n"]}
            | selected([r], *LIFE)[0]
            for keys in (("k", "v"), ("v",), ())
            for r in aggregate(living(t), keys, n=count)
        ],
    ),
    "DISTINCT of a union": (
        f"SELECT DISTINCT k FROM (SELECT k FROM {PERIODS} UNION ALL SELECT k FROM {MORE})",
        lambda t: distinct(selected(living(t), "k", *LIFE) + selected(living(t, "more"), "k", *LIFE)),
    ),
    "EXISTS twice": (
        (
            f"SELECT id FROM {PERIODS} p WHERE v < 2 AND NOT EXISTS (SELECT 1 FROM {MORE} m WHERE m.k = p.k "
            f"AND m.v = 0) AND NOT EXISTS (SELECT 1 FROM {MORE} m WHERE m.v > p.v + 1)"
        ),
        lambda t: selected(
            anti_join(
                anti_join(
                    [r for r in living(t) if r["v"] < 2], [r for r in living(t, "more") if r["v"] == 0], equal("k")
                ),
                living(t, "more"),
                lambda one, other: other["v"] > one["v"] + 1,
            ),
            "id",
            *LIFE,
        ),
    ),
}


@pytest.mark.parametrize(
    "shape", ["empty", "one_row", "duplicates", "unsorted", "few_times", "null_keys", "null_times"]
)
@pytest.mark.parametrize("configuration", ["shards_1", "shards_3"])
@pytest.mark.parametrize("name", NESTED)
@pytest.mark.in_turn(2)
def test_nesting(name: str, configuration: str, shape: str) -> None:
    sql, reference = NESTED[name]
    data = tables(shape, seed=3)
    assert_same_rows(
        ask(sql, data, configuration=configuration), reference({table: to_rows(rows) for table, rows in data.items()})
    )


def test_bots_by_definition() -> None:
    """Quill's bot elimination from the definitions alone: who clicks often is a bot while it does, and its clicks do
    not count."""
    from tests.temporal.asking import text_of

    for shape in ALL_SHAPES:
        clicks = (
            tables(shape, seed=2, rows=60)["events"].select(["k", "v", "ts"]).rename_columns(["user_id", "ad_id", "ts"])
        )
        rows = to_rows(clicks)
        bots = [row for row in aggregate(slide(rows, "ts", 10 * SECOND), ("user_id",), n=count) if row["n"] > 3]
        clean = anti_join(points(rows, "ts"), bots, equal("user_id"))
        expected = aggregate(quantize(clean, 60 * SECOND, 60 * SECOND), ("ad_id",), n=count)
        assert_same_rows(ask(text_of("bots"), {"clicks": clicks}), expected)


def test_every_instant() -> None:
    """The definition of a grouping: at every instant it is the plain one over the rows alive."""
    data = tables("on_bounds", seed=4)
    ours = ask(f"SELECT k, count(*) AS n, max(v) AS high FROM {PERIODS} GROUP BY k", data)
    rows = living({"periods": to_rows(data["periods"])})
    plain = per_snapshot(lambda alive: group_by(alive, ("k",), n=count, high=greatest("v")), rows)
    assert same_snapshots(ours, plain)
    ends = Counter((content(row), row["valid_to"]) for row in ours)
    assert not any(ends[content(row), row["valid_from"]] for row in ours), "rows that touch and are equal must be one"


@dataclass(frozen=True)
class Timed:
    """What the catalog knows of a table with a time."""

    period: tuple[str, str] | None = None
    event_time: str | None = None


def test_tables_that_say_their_time(monkeypatch) -> None:
    """A PERIOD is a lifetime, a stream is points; SEQUENCED VALIDTIME takes both, and a WITH before it is not
    sequenced."""
    data = tables("few_times", seed=6)
    known = {"periods": Timed(period=("vs", "ve")), "events": Timed(event_time="ts")}
    rows = {name: to_rows(table) for name, table in data.items()}
    with tsql.connect(threads=2) as session:
        for name, table in data.items():
            session.register(name, table)
        find = session.catalog.entry
        monkeypatch.setattr(session.catalog, "lookup", find)
        monkeypatch.setattr(session.catalog, "entry", lambda name: known.get(name) or find(name))

        def ours(sql: str) -> Rows:
            return rows_of(session.sql(sql).arrow())

        periods = lifetime(rows["periods"], "vs", end="ve")
        clicks = points(rows["events"], "ts")
        assert_same_rows(ours("SELECT id FROM LIFETIME(periods)"), selected(periods, "id", *LIFE))
        assert_same_rows(
            ours("SELECT id FROM EXTEND(periods, INTERVAL '1 second')"), selected(extend(periods, SECOND), "id", *LIFE)
        )
        assert_same_rows(
            ours("SEQUENCED VALIDTIME SELECT k, count(*) AS n FROM events GROUP BY k"),
            aggregate(clicks, ("k",), n=count),
        )
        joined = inner_join(
            selected(periods, "id", "k", *LIFE),
            [{"k": r["k"], "e": r["id"]} | selected([r], *LIFE)[0] for r in clicks],
            equal("k"),
        )
        assert_same_rows(
            ours("SEQUENCED VALIDTIME SELECT p.id, e.id AS e FROM periods p JOIN events e ON p.k = e.k"),
            selected(joined, "id", "e", *LIFE),
        )
        nested = (
            "SEQUENCED VALIDTIME SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM periods GROUP "
            "BY k) GROUP BY n"
        )
        assert_same_rows(ours(nested), aggregate(aggregate(periods, ("k",), n=count), ("n",), groups=count))
        plain = (
            "WITH all_rows AS (SELECT count(*) AS c FROM periods) SEQUENCED VALIDTIME SELECT DISTINCT c FROM "
            "periods, all_rows"
        )
        assert_same_rows(
            ours(plain), distinct([{"c": len(rows["periods"])} | selected([r], *LIFE)[0] for r in periods])
        )
        assert ours("SELECT count(*) AS n FROM periods") == [{"n": len(rows["periods"])}]


def test_views_keep_lifetimes(db) -> None:
    db.sql(f"CREATE VIEW busy AS SELECT k, count(*) AS n FROM {T} GROUP BY k")
    assert db.sql("SELECT max(n) AS peak FROM busy").arrow()["peak"].to_pylist() == [1, 2, 1]
    db.sql("CREATE TABLE stored AS SELECT k, n FROM busy")
    assert db.sql("SELECT max(n) AS peak FROM stored").arrow().to_pydict() == {"peak": [2]}
    assert db.sql("SELECT * FROM stored").arrow().schema.names == ["k", "n", "valid_from", "valid_to"]


@pytest.mark.parametrize(
    ("sql", "missing"),
    [
        ("SELECT id FROM SLIDE(gaps, ts, INTERVAL '5 seconds')", 2),
        ("SELECT count(*) AS n FROM SLIDE(gaps, ts, INTERVAL '5 seconds')", 2),
        ("SELECT id FROM LIFETIME(gaps, start => ts)", 2),
        ("SELECT id FROM LIFETIME(gaps, start => ts, duration => INTERVAL '1 second')", 2),
        ("SELECT id FROM LIFETIME(gaps, start => ts, end => ending)", 2),
        ("SELECT id FROM LIFETIME(gaps, start => ending)", 3),
        (
            (
                "SELECT k, median(id) AS m FROM CHOP(SLIDE(gaps, ts, INTERVAL '5 seconds'), INTERVAL '2 "
                "seconds') GROUP BY k"
            ),
            2,
        ),
        (
            (
                "SELECT a.id FROM SLIDE(gaps, ts, INTERVAL '5 seconds') a LEFT JOIN SLIDE(more_gaps, ts, "
                "INTERVAL '5 seconds') b ON a.k = b.k"
            ),
            3,
        ),
        (
            (
                "SELECT id FROM SLIDE(gaps, ts, INTERVAL '5 seconds') a WHERE NOT EXISTS (SELECT 1 FROM "
                "SLIDE(more_gaps, ts, INTERVAL '5 seconds') b WHERE a.k = b.k)"
            ),
            3,
        ),
        (
            (
                "SELECT DISTINCT k FROM SLIDE(gaps, ts, INTERVAL '5 seconds') EXCEPT SELECT k FROM "
                "SLIDE(more_gaps, ts, INTERVAL '5 seconds')"
            ),
            3,
        ),
        ("SELECT k FROM LIFETIME(gap_periods)", 1),
        ("SEQUENCED VALIDTIME SELECT k FROM gap_periods", 1),
        ("SELECT id FROM SLIDE(gaps, ts, INTERVAL '5 seconds') WHERE id > 100", 2),
        ("SELECT id FROM SLIDE((SELECT * FROM gaps WHERE id <> 2), ts, INTERVAL '5 seconds')", 1),
    ],
)
def test_rows_without_a_start_are_counted(sql: str, missing: int) -> None:
    """As windows count them: each once, however often the plan reads the relation."""
    seconds = [0, None, 5, None, 7]
    ends = [9, 9, None, None, None]
    with tsql.connect() as session:
        session.register(
            "gaps",
            pa.table(
                {"id": [1, 2, 3, 4, 5], "k": [1, 1, 2, 2, None], "ts": _seconds(seconds), "ending": _seconds(ends)}
            ),
        )
        session.register("more_gaps", pa.table({"k": [1, 2, 2], "ts": _seconds([0, None, 5])}))
        session.register(
            "gap_periods",
            pa.table({"k": [1, 2], "vs": _seconds([None, 0]), "ve": _seconds([None, None])}),
            period=("vs", "ve"),
        )
        relation = session.sql(sql)
        relation.arrow()
        assert relation.counts == {"rows without a time": missing}


def test_an_infinite_start_is_a_time() -> None:
    """It is not counted; a row that has always been alive is alive, and one that will never be is not."""
    infinite = 2**63 - 1
    with tsql.connect() as session:
        session.register(
            "ends",
            pa.table(
                {"id": [1, 2, 3], "ts": pa.array([-infinite, infinite, None], pa.int64()).cast(pa.timestamp("us"))}
            ),
        )
        relation = session.sql("SELECT id FROM LIFETIME(ends, start => ts)")
        assert relation.arrow()["id"].to_pylist() == [1]
        assert relation.counts == {"rows without a time": 1}


def _seconds(values: list[int | None]) -> pa.Array:
    return pa.array([None if v is None else v * 1_000_000 for v in values], pa.int64()).cast(pa.timestamp("us"))


def test_pivot_and_unpivot_per_snapshot() -> None:
    """A value that comes again later is one column; rows under each other keep their lifetimes."""
    with tsql.connect() as session:
        session.register(
            "points", pa.table({"id": [1, 2, 3], "k": ["a", "b", "a"], "v": [5, None, 7], "ts": _seconds([0, 3, 9])})
        )
        lives = "SLIDE(points, ts, INTERVAL '1 second')"
        found = session.sql(
            f"SELECT * FROM (PIVOT (SELECT k, v FROM {lives}) ON k USING count(*)) ORDER BY valid_from"
        ).arrow()
        assert found.column_names == ["v", "a", "b", "valid_from", "valid_to"]
        assert [row[:3] for row in zip(*found.to_pydict().values(), strict=True)] == [
            (5, 1, 0),
            (None, 0, 1),
            (7, 1, 0),
        ]
        assert found["valid_from"].cast(pa.int64()).to_pylist() == [0, 3 * SECOND, 9 * SECOND]
        found = session.sql(
            f"SELECT * FROM (UNPIVOT (SELECT id, v FROM {lives}) ON id, v INTO NAME n VALUE x) ORDER BY valid_from, n"
        ).arrow()
        assert found.column_names == ["n", "x", "valid_from", "valid_to"]
        assert list(zip(found["n"].to_pylist(), found["x"].to_pylist(), strict=True)) == [
            ("id", 1),
            ("v", 5),
            ("id", 2),
            ("id", 3),
            ("v", 7),
        ]
        assert found["valid_to"].cast(pa.int64()).to_pylist() == [SECOND, SECOND, 4 * SECOND, 10 * SECOND, 10 * SECOND]
