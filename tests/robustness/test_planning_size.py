"""Queries whose plans are small and whose expansions are not: each is planned in time that fits its text, or refused
with a reason."""

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import BindError, SourceError
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.planner.logical import nodes as logical

DEPTH = 30
LEVELS = {
    "join": "SELECT x.a, y.b FROM {c} x JOIN {c} y ON x.a = y.a WHERE x.b >= 0",
    "condition on each side": "SELECT x.a, y.b FROM {c} x JOIN {c} y ON x.a = y.a WHERE x.a < 100 AND y.b < 100",
    "left join": "SELECT x.a, y.b FROM {c} x LEFT JOIN {c} y ON x.a = y.a",
    "asof join": "SELECT x.a, y.b FROM {c} x ASOF JOIN {c} y ON x.a >= y.a",
    "union": "SELECT a, b FROM {c} UNION SELECT a, b FROM {c}",
    "except": "SELECT a, b FROM {c} EXCEPT SELECT a + 100, b FROM {c}",
    "scalar subquery": "SELECT a, (SELECT max(b) FROM {c}) AS b FROM {c}",
    "exists": "SELECT a, b FROM {c} x WHERE EXISTS (SELECT 1 FROM {c} y WHERE y.a = x.a)",
    "in": "SELECT a, b FROM {c} x WHERE a IN (SELECT a FROM {c} y)",
    "aggregate": "SELECT x.a, max(y.b) AS b FROM {c} x JOIN {c} y USING (a) GROUP BY x.a",
    "window": "SELECT x.a, max(y.b) OVER () AS b FROM {c} x JOIN {c} y ON x.a = y.a",
}


def chain(level: str, depth: int = DEPTH) -> str:
    """CTEs each of which uses the one before it twice."""
    parts = ["c0 AS (SELECT a, b FROM t)", *(f"c{i} AS ({level.format(c=f'c{i - 1}')})" for i in range(1, depth + 1))]
    return f"WITH {', '.join(parts)} SELECT max(a), max(b) FROM c{depth}"


@pytest.fixture
def db():
    with tsql.connect(threads=2) as session:
        session.register("t", pa.table({"a": range(10), "b": [i % 7 for i in range(10)]}))
        yield session


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_chains_of_tables_that_are_used_twice_are_planned(db, level):
    relation = db.sql(chain(level))
    assert relation.explain("physical").count("\n") < 2000
    assert relation.explain("logical").count("\n") < 5000


@pytest.mark.parametrize("optimizer", ["true", "false"])
def test_chains_of_tables_that_are_used_twice_run(db, optimizer):
    db.sql(f"SET optimizer = {optimizer}")
    assert db.sql(chain(LEVELS["union"])).fetchall() == [(9, 6)]
    assert db.sql(chain(LEVELS["in"])).fetchall() == [(9, 6)]


def test_a_walk_gives_each_node_once():
    node = logical.Values((), Schema((Field("a", BIGINT),)))
    for _ in range(DEPTH):
        node = logical.SetOperation("union", True, node, node)
    assert len(list(node.walk())) == DEPTH + 1


def test_macros_that_double_run_up_to_a_limit(db):
    db.sql("CREATE MACRO d0(x) AS x + 1")
    for depth in range(1, 9):
        db.sql(f"CREATE MACRO d{depth}(x) AS d{depth - 1}(x) + d{depth - 1}(x)")
    assert db.sql("SELECT d8(1)").fetchall() == [(512,)]


def test_macros_that_square_are_refused(db):
    db.sql("CREATE MACRO d0(x) AS x + x")
    with pytest.raises(BindError, match='macro "d[0-9]" expands to more than 50,000 parts of expressions'):
        for depth in range(1, 9):
            db.sql(f"CREATE MACRO d{depth}(x) AS d{depth - 1}(d{depth - 1}(x))")


def test_pivot_on_very_many_values_is_refused(db):
    with pytest.raises(BindError, match="PIVOT would give 20,000 columns, and at most 5,000 are possible"):
        db.sql("PIVOT (SELECT range AS p, 1 AS v FROM range(20000)) ON p USING sum(v)")


def test_pivot_on_many_values_is_planned_in_proportion(db):
    relation = db.sql("PIVOT (SELECT range AS p, 1 AS v FROM range(1000)) ON p USING sum(v)")
    assert len(relation.columns) == 1000
    assert "aggregate" in relation.explain("physical")


def test_a_csv_file_of_very_many_columns(db, tmp_path):
    path, columns = tmp_path / "wide.csv", 20_000
    path.write_text(",".join(f"c{i}" for i in range(columns)) + "\n" + ",".join(map(str, range(columns))) + "\n")
    relation = db.read_csv(path)
    assert len(relation.columns) == columns
    assert relation.explain("physical")
    assert db.sql(f"SELECT c7, c19999 FROM '{path}'").fetchall() == [(7, 19999)]
    assert db.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(1,)]


def test_like_with_very_many_parts(db):
    """Against the definition: the pieces between % stand in the text one after the other."""
    db.register("s", pa.table({"s": ["ab" * 500, "ab" * 499 + "a", "ba" * 500, "a" + "xxb" * 499, "", None]}))

    def matches(text, pieces):
        at = 0
        for piece in pieces:
            found = text.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return True

    for pieces in (["a"] * 500, ["ab"] * 500, ["b"] * 498, ["xx", "b"] * 249):
        expected = [
            None if s is None else matches(s, pieces)
            for s in ("ab" * 500, "ab" * 499 + "a", "ba" * 500, "a" + "xxb" * 499, "", None)
        ]
        pattern = "%" + "%".join(pieces) + "%"
        assert [row[0] for row in db.sql(f"SELECT s LIKE '{pattern}' FROM s").fetchall()] == expected
        assert [row[0] for row in db.sql(f"SELECT s ILIKE '{pattern.upper()}' FROM s").fetchall()] == expected
    assert db.sql(f"SELECT 'ab' LIKE '{'%' * 500}b'").fetchall() == [(True,)]
    assert db.sql(
        f"SELECT 'a%b' LIKE '{'%' * 500}!%b' ESCAPE '!', 'axb' LIKE '{'%' * 500}!%b' ESCAPE '!'"
    ).fetchall() == [(True, False)]


def test_two_hundred_different_windows_are_planned(db):
    windows = ", ".join(f"sum(a) OVER (ORDER BY a % {i + 2}, a) AS w{i}" for i in range(200))
    assert db.sql(f"SELECT {windows} FROM t").explain("physical").count("= window ") == 200


def test_a_plan_of_hundreds_of_levels_runs(db):
    """Kernels of all levels are the same, so that this is about depth alone."""
    parts = [
        "c0 AS (SELECT a, b FROM t)",
        *(f"c{i} AS (SELECT a, max(b) AS b FROM c{i - 1} GROUP BY a)" for i in range(1, 250)),
    ]
    assert db.sql(f"WITH {', '.join(parts)} SELECT count(*), max(b) FROM c249").fetchall() == [(10, 6)]


def test_a_plan_of_too_many_levels_is_refused(db):
    parts = [
        "c0 AS (SELECT a, b FROM t)",
        *(f"c{i} AS (SELECT a, max(b) AS b FROM c{i - 1} GROUP BY a)" for i in range(1, 700)),
    ]
    with pytest.raises(BindError, match=r"nested too deeply \(more than 600 levels\)"):
        db.sql(f"WITH {', '.join(parts)} SELECT count(*), max(b) FROM c699").fetchall()


def test_a_parquet_footer_that_claims_more_rows_than_its_bytes_hold(db, tmp_path):
    from tests.robustness.parquet_claims import claim

    path = tmp_path / "claims.parquet"
    for values in (False, True):
        claim(path, 10**12, values)
        with pytest.raises(
            SourceError,
            match=(
                "claims.parquet: .* claims 1,000,000,000,000 rows for row group 0, more than its bytes can "
                "hold: the file is damaged"
            ),
        ):
            db.sql(f"SELECT count(*) FROM '{path}'").fetchall()
    claim(path, 3, True)
    assert db.sql(f"SELECT count(*), sum(a) FROM '{path}'").fetchall() == [(3, 6)]


def test_pages_of_very_many_equal_rows_are_no_claim(db, tmp_path):
    """Runs of equal values take next to no bytes, however many they are."""
    import pyarrow.parquet as pq

    path = tmp_path / "equal.parquet"
    pq.write_table(pa.table({"a": pa.nulls(20_000_000, pa.int64())}), path, row_group_size=20_000_000)
    assert path.stat().st_size < 100_000
    assert db.sql(f"SELECT count(*), count(a) FROM '{path}'").fetchall() == [(20_000_000, 0)]


def test_very_many_columns_and_nodes_are_refused(db, monkeypatch):
    monkeypatch.setattr("tsql.analyze.statements.MAX_COLUMNS", 100)
    monkeypatch.setattr("tsql.analyze.statements.MAX_PLAN_NODES", 50)
    assert len(db.sql(f"SELECT {', '.join(['1'] * 100)}").columns) == 100
    with pytest.raises(BindError, match="the query gives 101 columns, and at most 100 are possible"):
        db.sql(f"SELECT {', '.join(['1'] * 101)}")
    with pytest.raises(BindError, match="the query is too large: its plan has more than 50 nodes"):
        db.sql(" UNION ALL ".join(["SELECT a FROM t"] * 60))
