"""MATCH_RECOGNIZE: published examples, random ones against the brute-force reference, the same rows arranged otherwise,
plans, errors."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.spark.cluster import InProcess
from tests.temporal.data import assert_same_rows, batches, shuffled, to_rows, to_table, write_pieces
from tests.temporal.match_random import SCHEMA, Case
from tests.temporal.reference.recognize import View, less, match_recognize
from tests.temporal.reference.rows import SECOND, us
from tsql.loaded import load_plan_text

PRICES = (12, 17, 19, 21, 25, 12, 15, 20, 24, 25, 19, 15, 25, 25, 14, 12, 14, 24, 23, 22)
"""The table `ticker` of Oracle's documentation of pattern matching: ACME on the first twenty days of April 2011."""
RISE_AND_FALL = "DEFINE DOWN AS DOWN.price < PREV(DOWN.price), UP AS UP.price > PREV(UP.price)"


def ticker() -> pa.Table:
    days = (
        pa.array([us(f"2011-04-{day:02d}") for day in range(1, 21)], pa.int64())
        .cast(pa.timestamp("us"))
        .cast(pa.date32())
    )
    return pa.table({"symbol": ["ACME"] * 20, "tstamp": days, "price": pa.array(PRICES, pa.int64())})


def ask(sql: str, table: pa.Table, name: str = "ticker", **options: Any) -> pa.Table:
    with tsql.connect(**{"threads": 2, **options}) as session:
        session.register(name, table)
        return session.sql(sql).arrow()


def days(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows with days as numbers."""
    return [tuple(value.day if hasattr(value, "day") else value for value in row.values()) for row in rows.to_pylist()]


def test_v_shape() -> None:
    found = ask(
        "SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY tstamp "
        "MEASURES STRT.tstamp AS start_tstamp, LAST(DOWN.tstamp) AS bottom_tstamp, LAST(UP.tstamp) AS end_tstamp "
        f"ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP PATTERN (STRT DOWN+ UP+) {RISE_AND_FALL}) MR ORDER "
        "BY MR.symbol, MR.start_tstamp",
        ticker(),
    )
    assert found.schema.names == ["symbol", "start_tstamp", "bottom_tstamp", "end_tstamp"]
    assert found.schema.field("end_tstamp").type == pa.date32()
    assert days(found) == [("ACME", 5, 6, 10), ("ACME", 10, 12, 13), ("ACME", 14, 16, 18)]


def test_v_shape_with_all_rows() -> None:
    """The columns are those of PARTITION BY, of ORDER BY, the measures, and the rest."""
    found = ask(
        "SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY tstamp MEASURES STRT.tstamp AS "
        "start_tstamp, FINAL LAST(DOWN.tstamp) AS bottom_tstamp, "
        "FINAL LAST(UP.tstamp) AS end_tstamp, MATCH_NUMBER() AS match_num, CLASSIFIER() AS var_match "
        f"ALL ROWS PER MATCH AFTER MATCH SKIP TO LAST UP PATTERN (STRT DOWN+ UP+) {RISE_AND_FALL}) MR "
        "ORDER BY MR.symbol, MR.match_num, MR.tstamp",
        ticker(),
    )
    assert found.schema.names == [
        "symbol",
        "tstamp",
        "start_tstamp",
        "bottom_tstamp",
        "end_tstamp",
        "match_num",
        "var_match",
        "price",
    ]
    expected = []
    for number, (start, bottom, end) in enumerate(((5, 6, 10), (10, 12, 13), (14, 16, 18)), 1):
        for day in range(start, end + 1):
            variable = "STRT" if day == start else "DOWN" if day <= bottom else "UP"
            expected.append(("ACME", day, start, bottom, end, number, variable, PRICES[day - 1]))
    assert days(found) == expected


def test_running_and_final_counts() -> None:
    """The first of the three matches of the documentation's example of aggregates."""
    found = ask(
        "SELECT tstamp, up_days, total_days, cnt_days, price_dif FROM ticker MATCH_RECOGNIZE (PARTITION BY "
        "symbol ORDER BY tstamp MEASURES "
        "FINAL COUNT(UP.tstamp) AS up_days, FINAL COUNT(tstamp) AS total_days, RUNNING COUNT(tstamp) AS "
        "cnt_days, price - STRT.price AS price_dif, MATCH_NUMBER() AS n "
        f"ALL ROWS PER MATCH AFTER MATCH SKIP TO LAST UP PATTERN (STRT DOWN+ UP+) {RISE_AND_FALL}) WHERE n "
        "= 1 ORDER BY tstamp",
        ticker(),
    )
    assert days(found) == [
        (5, 4, 6, 1, 0),
        (6, 4, 6, 2, -13),
        (7, 4, 6, 3, -10),
        (8, 4, 6, 4, -5),
        (9, 4, 6, 5, -1),
        (10, 4, 6, 6, 0),
    ]


def test_double_bottom() -> None:
    found = ask(
        "SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY tstamp MEASURES STRT.tstamp AS "
        "start_tstamp, UP.tstamp AS end_tstamp "
        f"AFTER MATCH SKIP TO LAST UP PATTERN (STRT DOWN+ UP+ DOWN+ UP+) {RISE_AND_FALL})",
        ticker(),
    )
    assert days(found) == [("ACME", 5, 13)]


def seconds(*prices: int) -> pa.Table:
    times = pa.array([us("2011-04-01 10:00:00") + place * SECOND for place in range(len(prices))], pa.int64()).cast(
        pa.timestamp("us")
    )
    return pa.table({"symbol": ["ACME"] * len(prices), "rowtime": times, "price": pa.array(prices, pa.int64())})


def test_falling_prices_of_flink() -> None:
    """Flink's documentation: a period in which the price falls, with conditions over the match so far."""
    found = ask(
        "SELECT T.start_tstamp, T.bottom_tstamp, T.end_tstamp FROM ticker MATCH_RECOGNIZE (PARTITION BY "
        "symbol ORDER BY rowtime "
        "MEASURES second(START_ROW.rowtime) AS start_tstamp, second(LAST(PRICE_DOWN.rowtime)) AS "
        "bottom_tstamp, second(LAST(PRICE_UP.rowtime)) AS end_tstamp "
        "ONE ROW PER MATCH AFTER MATCH SKIP TO LAST PRICE_UP PATTERN (START_ROW PRICE_DOWN+ PRICE_UP) "
        "DEFINE PRICE_DOWN AS (LAST(PRICE_DOWN.price, 1) IS NULL AND PRICE_DOWN.price < START_ROW.price) "
        "OR PRICE_DOWN.price < LAST(PRICE_DOWN.price, 1), "
        "PRICE_UP AS PRICE_UP.price > LAST(PRICE_DOWN.price, 1)) AS T",
        seconds(12, 17, 19, 21, 25, 18, 15, 14, 24, 25, 19),
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == [(4, 7, 8)]


def test_average_below_a_threshold_of_flink() -> None:
    """Flink's documentation: the longest period in which the average price stays below 15."""
    found = ask(
        "SELECT start_tstamp, end_tstamp, avgPrice FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY rowtime "
        "MEASURES second(FIRST(A.rowtime)) AS start_tstamp, second(LAST(A.rowtime)) AS end_tstamp, "
        "AVG(A.price) AS avgPrice "
        "ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS AVG(A.price) < 15)",
        seconds(12, 17, 13, 16, 25, 2, 4, 10, 15, 25, 25, 30),
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == [(0, 3, 14.5), (5, 10, 13.5)]


@pytest.mark.parametrize(("pattern", "expected"), [("A B* C", [16]), ("A B*? C", [13, 16])])
def test_greedy_and_reluctant_of_flink(pattern: str, expected: list[int]) -> None:
    found = ask(
        "SELECT last_price FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY rowtime MEASURES "
        f"C.price AS last_price PATTERN ({pattern}) "
        "DEFINE A AS A.price > 10, B AS B.price < 15, C AS C.price > 12)",
        seconds(10, 11, 12, 13, 14, 16),
    )
    assert found["last_price"].to_pylist() == expected


def test_within_excludes_its_end() -> None:
    """Rows a second apart: one exactly two seconds after the first is outside of two seconds, in either direction of
    the order."""
    for order in ("rowtime", "rowtime DESC"):
        sql = (
            f"SELECT n FROM ticker MATCH_RECOGNIZE (ORDER BY {order} MEASURES count(*) AS n PATTERN (A+) "
            "WITHIN INTERVAL '2 seconds' DEFINE A AS true)"
        )
        assert ask(sql, seconds(1, 2, 3, 4, 5))["n"].to_pylist() == [2, 2, 1]


def test_sessions_against_duckdb() -> None:
    """Oracle's sessions (B S*, a row at most ten after the one before) are what LAG and a running sum say."""
    times = [0, 3, 13, 24, 25, 26, 40, 50, 51, 90]
    table = pa.table({"k": [1] * 10 + [2] * 10, "t": times + [t * 3 for t in times]})
    found = ask(
        (
            "SELECT k, a, z, n FROM e MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(t) AS a, "
            "LAST(t) AS z, count(*) AS n PATTERN (B S*) DEFINE S AS t - PREV(t) <= 10)"
        ),
        table,
        "e",
    )
    with empty_duckdb() as connection:
        connection.register("e", table)
        expected = connection.sql(
            "SELECT k, min(t) AS a, max(t) AS z, count(*) AS n FROM (SELECT *, sum(new) OVER (PARTITION BY "
            "k ORDER BY t) AS s FROM "
            "(SELECT *, (coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) > 10, true))::INT AS new "
            "FROM e)) GROUP BY k, s"
        ).to_arrow_table()
    assert_same_rows(found, expected)


def check(case: Case, session: Any) -> None:
    """The engine says what the reference does, rows or the error of SKIP."""
    session.register("t", to_table(case.rows, SCHEMA))
    expected = case.expected()
    try:
        if expected is None:
            with pytest.raises(tsql.ExecutionError, match="AFTER MATCH SKIP TO"):
                session.sql(case.sql()).arrow()
        else:
            assert_same_rows(to_rows(session.sql(case.sql()).arrow()), expected)
    except AssertionError as problem:
        raise AssertionError(f"seed {case.seed}: {case.sql()}\n{case.rows}\n{problem}") from problem


@pytest.mark.parametrize("history", [False, True], ids=["rows decide", "the match decides"])
@pytest.mark.parametrize("first", range(0, 40, 10))
@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.in_turn(3)
def test_random_patterns(first: int, history: bool, odd: int) -> None:
    with tsql.connect(threads=2) as session:
        for seed in range(first + odd, first + 10, 2):
            check(Case(seed + 10_000 * history, history), session)


@pytest.mark.parametrize("history", [False, True], ids=["rows decide", "the match decides"])
def test_random_patterns_in_the_interpreter(history: bool, pytestconfig: pytest.Config) -> None:
    with tsql.connect(threads=1, backend="interp") as session:
        for seed in range(500, 520 if pytestconfig.getoption("--all-configurations") else 510):
            check(Case(seed, history), session)


def random_walk(rows: int = 400) -> pa.Table:
    """Five keys, unique times, and values that go up and down."""
    steps = [(place * 7919 + place // 3) % 23 for place in range(rows)]
    return pa.table(
        {
            "id": list(range(rows)),
            "k": [(place * 31) % 5 for place in range(rows)],
            "v": steps,
            "ts": [place * 10 for place in range(rows)],
        }
    )


ARRANGED = (
    "SELECT k, f, l, n, low FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(id) AS f, "
    "LAST(id) AS l, count(*) AS n, min(DOWN.v) AS low "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (S DOWN+ UP{1,3}) DEFINE DOWN AS v < PREV(v), UP AS v > "
    "PREV(v) AND v < FIRST(v) + 5)"
)


def arranged_reference(table: pa.Table) -> list[dict[str, Any]]:
    def up(m: View) -> Any:
        return less(m.prev("v"), m.last("v")) and less(m.last("v"), m.first("v") + 5)

    measures = {
        "f": lambda m: m.first("id"),
        "l": lambda m: m.last("id"),
        "n": lambda m: len(m.mapped()),
        "low": lambda m: min(row["v"] for row in m.mapped("DOWN")),
    }
    define = {"DOWN": lambda m: less(m.last("v"), m.prev("v")), "UP": up}
    return match_recognize(to_rows(table), "S DOWN+ UP{1,3}", define, measures, "ts", ("k",), skip="TO NEXT ROW")


def test_arrangement_does_not_matter() -> None:
    """Shuffled rows, batches of any size, any number of shards, a memory limit: the same rows."""
    table = random_walk()
    expected = arranged_reference(table)
    assert len(expected) > 50
    for seed in range(3):
        assert_same_rows(to_rows(ask(ARRANGED, shuffled(table, seed), "t")), expected)
    for rows in (1, 7, 64):
        assert_same_rows(
            to_rows(ask(ARRANGED, pa.Table.from_batches(batches(table, rows), schema=table.schema), "t")), expected
        )
    for shards in (1, 2, 3, 8):
        assert_same_rows(
            to_rows(ask(ARRANGED.replace("SELECT", f"SELECT /*+ SHARDS({shards}) */", 1), table, "t")), expected
        )


def test_plan_text(pytestconfig: pytest.Config) -> None:
    """The plan of a random match prints, parses to an equal plan, and gives the same rows."""
    with tsql.connect(threads=2) as session:
        for seed in range(900, 915 if pytestconfig.getoption("--all-configurations") else 908):
            case = Case(seed, history=True)
            session.register("t", to_table(case.rows, SCHEMA))
            text = session.sql(case.sql()).plan()
            loaded = load_plan_text(text)
            assert loaded.bind(session).text() == text, f"seed {seed}"
            if (expected := case.expected()) is not None:
                assert_same_rows(to_rows(loaded.run(session).arrow()), expected)


PLAN = """plan version 1
target local shards=1

t = scan t columns=(id, k, v, s, ts)
m = match t by=(k) order=(ts asc nulls last) pattern='A B+' output=one define=(B=(v > prev(v))) \
measures=(n=running(count(*), 'B'))
output m (k, n)
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("'A B+'", "'A B+ ('", "a variable is missing before the end in the pattern"),
        ("'A B+'", "A", "A is no text in quotes"),
        ("output=one", "output=some", "output=some: it is one of one, all, matched, unmatched"),
        (
            "output=one",
            "output=one skip='to first Z'",
            (
                "skip='to first Z': it is one of past last row, to next row, to first, to last, the last two "
                "with variables of the pattern"
            ),
        ),
        ("(B=(v", "(C=(v", "define names C, which is no variable of the pattern"),
        ("(v > prev(v))", "(v > prev(w))", 'column "w" does not exist'),
        ("'B')", "'Z')", "'Z' is no variable of the pattern"),
        ("running(count(*), 'B')", "v", "a measure is one read of a match, such as last(x), not v"),
        ("(n=", "(v=", "v is a column of t already"),
        ("by=(k)", "by=(k + 1)", "by=(..) of a match takes columns"),
        ("shards=1", "shards=2", "step m: match requires of t: rows of one (k) in one shard; it has 2 shards"),
    ],
)
def test_edited_plans(old: str, new: str, message: str) -> None:
    with tsql.connect(threads=2) as session:
        session.register("t", to_table(Case(3, False).rows, SCHEMA))
        assert load_plan_text(PLAN).run(session).arrow().schema.names == ["k", "n"]
        with pytest.raises(tsql.PlanError) as problem:
            load_plan_text(PLAN.replace(old, new, 1)).run(session).arrow()
        assert message in problem.value.message


ERRORS = [
    ("MEASURES A.prise AS m PATTERN (A B) DEFINE B AS true", 'column "prise" does not exist', 'did you mean "price"?'),
    (
        "MEASURES FIRST(A.price + B.price) AS m PATTERN (A B) DEFINE B AS true",
        "FIRST names columns of A and of B: all of its argument is about one row",
        None,
    ),
    (
        "MEASURES FIRST(PREV(A.price)) AS m PATTERN (A B) DEFINE B AS true",
        "PREV cannot stand inside of FIRST",
        "PREV may stand around it: PREV(LAST(A.x), 1)",
    ),
    ("MEASURES sum(FIRST(A.price)) AS m PATTERN (A B) DEFINE B AS true", "FIRST cannot stand inside of sum", None),
    (
        "MEASURES PREV(sum(A.price)) AS m PATTERN (A B) DEFINE B AS true",
        "an aggregate cannot stand inside of PREV",
        None,
    ),
    (
        "MEASURES LAST(A.price, -1) AS m PATTERN (A B) DEFINE B AS true",
        "the second argument of LAST is a number of rows: a constant that is not negative",
        None,
    ),
    (
        "MEASURES LAST(A.price, 1, 2) AS m PATTERN (A B) DEFINE B AS true",
        "LAST takes an expression and a number of rows, not 3 arguments",
        None,
    ),
    ("MEASURES FINAL abs(price) AS m PATTERN (A B) DEFINE B AS true", "FINAL is for FIRST, LAST and aggregates", None),
    ("MEASURES A.* AS m PATTERN (A B) DEFINE B AS true", "* of a variable is for count(A.*)", None),
    (
        "MEASURES CLASSIFIER(1) AS m PATTERN (A B) DEFINE B AS true",
        "CLASSIFIER takes nothing, or a variable of the PATTERN",
        None,
    ),
    ("MEASURES MATCH_NUMBER(1) AS m PATTERN (A B) DEFINE B AS true", "MATCH_NUMBER takes no arguments", None),
    ("MEASURES price AS m, tstamp AS M PATTERN (A B) DEFINE B AS true", 'MEASURES gives "M" twice', None),
    ("MEASURES (SELECT 1) AS m PATTERN (A B) DEFINE B AS true", "a subquery is not allowed in MEASURES", None),
    ("MEASURES rank() OVER () AS m PATTERN (A B) DEFINE B AS true", "MEASURES cannot contain window functions", None),
    ("PATTERN (A B) DEFINE B AS true", "MATCH_RECOGNIZE has no columns: it needs MEASURES or PARTITION BY", None),
    (
        "ORDER BY price MEASURES price AS m PATTERN (A B) WITHIN INTERVAL '1 hour' DEFINE B AS true",
        "WITHIN needs a time as the first expression of ORDER BY",
        "it is BIGINT",
    ),
    (
        "MEASURES price AS m PATTERN ((A{1000}){200}) DEFINE A AS true",
        "the automaton of the pattern has more than 100,000 states",
        "use smaller bounds, or * and +",
    ),
    (
        "MEASURES price AS m PATTERN (A B) DEFINE B AS regexp_matches(PREV(symbol), 'x')",
        "regexp_matches in DEFINE cannot take PREV, NEXT, FIRST, LAST or an aggregate",
        (
            "regexp_matches may stand inside of them, PREV(regexp_matches(..)), or be computed in a subquery "
            "that MATCH_RECOGNIZE reads"
        ),
    ),
]


@pytest.mark.parametrize(("clauses", "message", "hint"), ERRORS)
def test_errors(clauses: str, message: str, hint: str | None) -> None:
    with pytest.raises(tsql.BindError) as problem:
        ask(f"SELECT * FROM ticker MATCH_RECOGNIZE ({clauses})", ticker())
    assert (problem.value.message, problem.value.hint) == (message, hint)
    assert problem.value.position is not None


def test_errors_while_it_runs() -> None:
    """A cast of a condition, and a SKIP to the row where the match began; each with its position."""
    for clauses, message, at in (
        (
            "PATTERN (A B) DEFINE B AS CAST(PREV(symbol) AS INTEGER) = 1",
            "Could not convert string 'ACME' to INT32",
            "CAST",
        ),
        (
            "AFTER MATCH SKIP TO A PATTERN (A B) DEFINE B AS true",
            "AFTER MATCH SKIP TO A: the search would go on at the first row of the match, for ever",
            "AFTER",
        ),
        (
            "AFTER MATCH SKIP TO B PATTERN (A B?) DEFINE B AS false",
            "AFTER MATCH SKIP TO B: no row of the match is mapped to it",
            "AFTER",
        ),
    ):
        sql = f"SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY tstamp {clauses})"
        with pytest.raises(tsql.ExecutionError) as problem:
            ask(sql, ticker())
        assert (problem.value.message, problem.value.position) == (message, sql.index(at))


def test_no_exponential_search() -> None:
    """Where rows decide alone, ways that failed are not tried again, from no start."""
    rows = 20_000
    table = pa.table({"ts": list(range(rows)), "v": [1] * rows})
    for pattern in ("(A | B)* C", "(A* B*)* C", "(A? B?){5} (A | B)+ C", "((A+)+ B?)+ C"):
        assert (
            ask(
                (
                    f"SELECT n FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n PATTERN ({pattern}) "
                    "DEFINE A AS v = 1, B AS v > 0, C AS v = 2)"
                ),
                table,
                "t",
            ).num_rows
            == 0
        )


def test_long_matches() -> None:
    """One match over all rows, with states of the match so far; a search that goes back over all of it."""
    rows = 50_000
    table = pa.table({"ts": list(range(rows)), "v": [place % 7 for place in range(rows)]})
    sql = (
        "SELECT n, s, f, l FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n, sum(B.v)::BIGINT AS "
        "s, FIRST(B.ts) AS f, LAST(B.ts, 1000) AS l PATTERN ({}) DEFINE {})"
    )
    whole = [{"n": rows, "s": sum(place % 7 for place in range(1, rows)), "f": 1, "l": rows - 1 - 1000}]
    assert ask(sql.format("A B*", "B AS sum(B.v) >= 0 AND v >= FIRST(A.v)"), table, "t").to_pylist() == whole
    assert ask(sql.format("A B+ C | A B+", "B AS ts >= FIRST(ts), C AS false"), table, "t").to_pylist() == whole


def test_around_and_inside() -> None:
    """Over a join, inside of a subquery and a CTE, with a filter on PARTITION BY, correlated, twice, and over no
    rows."""
    table = random_walk()
    match = (
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(id) AS f, count(*) AS n PATTERN (S "
        "DOWN+) DEFINE DOWN AS v < PREV(v))"
    )
    with tsql.connect(threads=2) as session:
        session.register("t", table)
        all_rows = session.sql(f"SELECT * FROM t {match}").arrow()
        assert all_rows.num_rows > 20

        def rows(sql: str) -> list[tuple[Any, ...]]:
            return sorted(map(tuple, session.sql(sql).fetchall()))

        known = sorted(tuple(row.values()) for row in all_rows.to_pylist())
        assert rows(f"SELECT * FROM t {match} WHERE k = 3") == [row for row in known if row[0] == 3]
        assert "where=(k = 3)" in session.sql(f"SELECT * FROM t {match} WHERE k = 3").plan().split("match")[0]
        assert "where=" not in session.sql(f"SELECT * FROM t {match} WHERE k + n = 3").plan().split("match")[0]
        assert (
            rows(
                f"WITH c AS (SELECT * FROM (SELECT * FROM t WHERE v >= 0) AS i {match} AS m) SELECT c.* "
                "FROM c JOIN c AS d USING (f)"
            )
            == known
        )
        assert rows(f"SELECT n, count(*) FROM t {match} GROUP BY n") == sorted(
            (n, sum(row[2] == n for row in known)) for n in {row[2] for row in known}
        )
        assert rows(f"SELECT * FROM (SELECT * FROM t WHERE false) AS t {match}") == []
        assert rows(
            "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES 7 AS seven PATTERN (A{200}) DEFINE A AS true)"
        ) == [(7,), (7,)]
        assert rows(
            "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(id) AS a, FIRST(id) AS b PATTERN "
            "(A{200}) DEFINE A AS true)"
        ) == [(0, 0), (200, 200)]
        counted = rows(
            f"SELECT o.k, (SELECT count(*) FROM (SELECT * FROM t WHERE t.k = o.k) AS t {match}) FROM "
            "(SELECT DISTINCT k FROM t) AS o"
        )
        assert counted == [(k, sum(row[0] == k for row in known)) for k in range(5)]
        above = (
            "MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n, sum(A.v - least)::BIGINT AS s PATTERN (A+) "
            "DEFINE A AS v > least AND FIRST(A.v + least) >= 0)"
        )
        one_by_one = [
            (least, *row)
            for least in (5, 20)
            for row in rows(f"SELECT n, s FROM t {above.replace('least', str(least))}")
        ]
        assert rows(
            f"SELECT least, n, s FROM (VALUES (5), (20)) AS o(least), LATERAL (SELECT * FROM t {above}) AS m"
        ) == sorted(one_by_one)


def test_spark(tmp_path: Path) -> None:
    """Tasks of Spark, run in this process over files, give the same rows; ties follow the order of the files."""
    with tsql.connect(spark=InProcess()) as session:
        cases = [case for seed in range(12) if (case := Case(seed, history=seed % 2 == 0)).expected() is not None]
        assert len(cases) > 5
        for case in cases:
            folder = tmp_path / str(case.seed)
            folder.mkdir()
            write_pieces(to_table(case.rows, SCHEMA), 3, folder, case.seed)
            found = session.sql(case.sql().replace("FROM t ", f"FROM '{folder}/*.parquet' AS t ")).arrow()
            assert_same_rows(to_rows(found), case.expected())


def test_memory_limit() -> None:
    """Partitions that do not fit memory together are placed in files; one that does not fit by itself ends the query
    with an error."""
    rows = 200_000
    table = pa.table(
        {
            "k": [place % 50 for place in range(rows)],
            "ts": list(range(rows)),
            "v": [place * 7919 % 23 for place in range(rows)],
        }
    )
    sql = (
        "SELECT count(*) AS n, sum(m)::BIGINT AS s FROM t MATCH_RECOGNIZE ({} ORDER BY ts MEASURES count(*) "
        "AS m PATTERN (S DOWN+ UP*) DEFINE DOWN AS v < PREV(v), UP AS v > PREV(v))"
    )
    expected = ask(sql.format("PARTITION BY k"), table, "t")
    assert ask(sql.format("PARTITION BY k"), table, "t", memory_limit="8MB") == expected
    with pytest.raises(tsql.OutOfMemoryError):
        ask(sql.format(""), table, "t", memory_limit="4MB")


def test_a_search_can_be_cancelled() -> None:
    """With conditions over the match so far a search may take for ever: it ends when it is asked to."""
    table = pa.table({"ts": list(range(200)), "v": [1] * 200})
    sql = (
        "SELECT count(*) FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n PATTERN ((A | B)* C) "
        "DEFINE A AS v >= FIRST(v), B AS sum(v) > 0, C AS sum(v) < 0)"
    )
    with tsql.connect(threads=2) as session:
        session.register("t", table)
        session.sql(sql.replace("FROM t ", "FROM (SELECT * FROM t LIMIT 3) AS t ")).arrow()
        relation = session.sql(sql)
        timer = threading.Timer(0.5, relation.cancel)
        timer.start()
        with pytest.raises(tsql.CancelledError):
            relation.arrow()


def test_many_variables() -> None:
    """More variables, conditions and marks than a word has bits, with names of all kinds; the plan prints and
    parses."""
    names = [f'"v {place}"' if place % 2 else f"V{place}" for place in range(70)]
    values = [value for value in range(70) if value % 3] * 2
    table = pa.table({"ts": list(range(len(values))), "v": values})
    define = ", ".join(f"{name} AS v = {place} AND ts >= 0" for place, name in enumerate(names))
    sql = (
        "SELECT c, n, m, f FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES CLASSIFIER() AS c, MATCH_NUMBER() "
        "AS n, count(U.v) AS m, FIRST(V68.ts) AS f ALL ROWS PER MATCH "
        f'PATTERN ({" ".join(f"{name}*" for name in names)}) SUBSET U = (V4, "v 67") DEFINE {define})'
    )
    expected = []
    for start in (0, len(values) // 2):
        for value in values[: len(values) // 2]:
            name = f"v {value}" if value % 2 else f"V{value}"
            seen = (value >= 4) + (value >= 67)
            expected.append(
                {"c": name, "n": 1 + (start > 0), "m": seen, "f": start + values.index(68) if value >= 68 else None}
            )
    with tsql.connect(threads=2) as session:
        session.register("t", table)
        assert_same_rows(to_rows(session.sql(sql).arrow()), expected)
        assert_same_rows(to_rows(load_plan_text(session.sql(sql).plan()).run(session).arrow()), expected)


def test_types_and_parameters() -> None:
    """Values of every kind in conditions and measures, NULL for what is not there, and parameters in all places."""
    table = pa.table(
        {
            "ts": pa.array([us("2024-01-01") + place * SECOND for place in range(6)], pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
            "s": ["a", None, "long text of some bytes", "", "b", "c"],
            "x": [1.5, None, 2.5, -1.0, 0.25, 3.0],
            "d": pa.array([10, 20, None, 5, 7, 9], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2)),
            "b": [True, False, None, True, True, False],
            "i": pa.array([1, 2, 3, 4, 5, 6], pa.int8()),
        }
    )
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(B.s) AS s, PREV(FIRST(s)) AS none, "
        "avg(x) AS x, sum(B.d) AS d, bool_or(b) AS b, LAST(ts) - FIRST(ts) AS span, "
        "max(B.s) AS top, C.i AS c, sum(C.x) AS nothing, count(C.i) AS zero, LAST(i, 1) AS i PATTERN (A "
        "B{1,2} C?) WITHIN ? DEFINE B AS x > ? OR s IS NULL, C AS false)"
    )
    with tsql.connect(threads=2) as session:
        session.register("t", table)
        found = session.sql(sql, [timedelta(seconds=3), -5]).arrow()
        first, second = found.to_pylist()
        types = {name: str(kind) for name, kind in zip(found.schema.names, found.schema.types)}
    assert types == {
        "s": "string", "none": "string", "x": "double", "d": "decimal128(38, 2)", "b": "bool",
        "span": "month_day_nano_interval", "top": "string", "c": "int8", "nothing": "double", "zero": "int64",
        "i": "int8",
    }  # fmt: skip
    assert (first["s"], first["none"], first["x"], first["d"], first["b"], first["span"].nanoseconds) == (
        "long text of some bytes",
        None,
        2.0,
        Decimal(20),
        True,
        2_000_000_000,
    )
    assert (first["top"], first["c"], first["nothing"], first["zero"], first["i"]) == (
        "long text of some bytes",
        None,
        None,
        0,
        2,
    )
    assert (second["s"], second["none"], second["d"], second["i"]) == ("c", "long text of some bytes", Decimal(16), 5)


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("level", ["", "ANALYZE"])
def test_explain_of_a_match_that_is_joined_to_its_table(kind: str, level: str) -> None:
    """Estimates of a match do not speak of the columns of its input, which the other side of the join has too."""
    with tsql.connect() as session:
        session.execute(
            "CREATE TABLE t AS SELECT range AS id, range AS v, TIMESTAMP '2024-01-01' + "
            "to_hours(range::INT) AS ts FROM range(20)"
        )
        match = "t MATCH_RECOGNIZE (ORDER BY ts MEASURES id AS x PATTERN (A) DEFINE A AS v > 5) AS m"
        assert (
            "match"
            in session.sql(f"EXPLAIN {level} SELECT m.x FROM {match} {kind} t AS z ON z.id = m.x").fetchall()[0][1]
        )
