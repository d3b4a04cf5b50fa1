"""Files that are read in the order of a time (`progress` of a scan): the same rows, and little is held on the way."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.temporal.reference.rows import SECOND
from tsql.backends.live import bounded
from tsql.backends.live.query import LiveQuery
from tsql.planner.cost import constants as cost
from tsql.planner.physical.planfile import parse_plan

DAY = 86_400 * SECOND
QUERY = (
    "SELECT window_start, k, count(*) AS n, sum(v)::BIGINT AS s FROM TUMBLE('{}', ts, INTERVAL '1 day') GROUP BY ALL"
)
ORACLE = (
    "SELECT time_bucket(INTERVAL '1 day', ts, TIMESTAMP '1970-01-01') AS window_start, k, count(*) AS n, "
    "sum(v)::BIGINT AS s FROM '{}' WHERE ts IS NOT NULL GROUP BY ALL"
)


@pytest.fixture
def year(tmp_path: Path) -> str:
    """Twelve files of thirty days, hardly in order within, each in row groups of five days; some rows have no time."""
    rng = random.Random(4)
    for month in range(12):
        times = sorted(month * 30 * DAY + rng.randrange(30 * DAY) + rng.randrange(2 * DAY) for _ in range(600))
        rows = {
            "k": [rng.randrange(20) for _ in times],
            "v": [rng.randrange(100) for _ in times],
            "ts": pa.array([None if rng.random() < 0.01 else t for t in times], pa.timestamp("us")),
        }
        pq.write_table(pa.table(rows), tmp_path / f"{11 - month:02}.parquet", row_group_size=100)
    return str(tmp_path / "*.parquet")


@pytest.fixture
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans as they would be for files a thousand times as large."""
    monkeypatch.setattr(cost, "PROGRESS_ROWS", 200)
    monkeypatch.setattr(cost, "PROGRESS_BYTES", 10_000)


def expected_of(files: str) -> list[tuple]:
    return sorted(duckdb.sql(ORACLE.format(files)).fetchall(), key=repr)


def test_planner_reads_in_order_where_groups_are_many(
    year: str, small_rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    before = LiveQuery._advance

    def watched(self: LiveQuery, arrived: dict) -> list:
        found = before(self, arrived)
        held.append(self.rows_held())
        return found

    monkeypatch.setattr(LiveQuery, "_advance", watched)
    with tsql.connect(threads=2) as session:
        relation = session.sql(QUERY.format(year))
        assert "progress=ts" in relation.plan()
        assert sorted(relation.fetchall(), key=repr) == expected_of(year)
        assert relation.counts["rows without a time"] > 0
    assert len(held) > 20
    assert max(held) < 1_000, "of 7,200 rows about those of a month are held"


@pytest.mark.parametrize("call", ["first(v)", "last(v)", "string_agg(v, ',')", "arg_max(v, k)"])
@pytest.mark.parametrize("in_order", [True, False])
def test_the_order_of_files_is_kept_where_it_matters(
    call: str, in_order: bool, tmp_path: Path, small_rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that overlap a little: in the order of time they are read as they lie, otherwise `progress` is left out."""
    rng = random.Random(7)
    for day in range(10):
        times = pa.array([day * DAY + rng.randrange(DAY + DAY // 2) for _ in range(100)], pa.timestamp("us"))
        pq.write_table(
            pa.table(
                {"k": [rng.randrange(3) for _ in range(100)], "v": [day * 100 + n for n in range(100)], "ts": times}
            ),
            tmp_path / f"{day if in_order else 9 - day}.parquet",
        )
    sql = f"SELECT CAST(ts AS DATE) AS d, {call} AS a, count(*) AS n FROM '{tmp_path}/*.parquet' GROUP BY ALL"
    monkeypatch.setattr(cost, "PROGRESS_BYTES", 100)
    with tsql.connect(threads=2) as session:
        relation = session.sql(sql)
        assert ("progress=ts" in relation.plan()) == in_order
        ours = sorted(relation.fetchall())
    monkeypatch.setattr(cost, "PROGRESS_BYTES", 1 << 40)
    with tsql.connect(threads=2) as session:
        relation = session.sql(sql)
        assert "progress" not in relation.plan()
        assert ours == sorted(relation.fetchall())


def test_planner_leaves_small_groups_alone(year: str) -> None:
    with tsql.connect(threads=2) as session:
        assert "progress" not in session.sql(QUERY.format(year)).plan()


def test_files_out_of_order_are_read_as_they_are(tmp_path: Path, small_rounds: None) -> None:
    rng = random.Random(1)
    times = [rng.randrange(100 * DAY) for _ in range(3_000)]
    pq.write_table(
        pa.table({"k": [1] * 3_000, "v": list(range(3_000)), "ts": pa.array(times, pa.timestamp("us"))}),
        tmp_path / "a.parquet",
        row_group_size=100,
    )
    with tsql.connect(threads=2) as session:
        assert "progress" not in session.sql(QUERY.format(tmp_path / "a.parquet")).plan()


@pytest.mark.parametrize("backend", ["local", "interp"])
def test_a_plan_may_say_it(year: str, backend: str, small_rounds: None, tmp_path: Path) -> None:
    """Any plan, whatever its steps: what nothing closes is held until the end."""
    with tsql.connect(threads=2, backend=backend) as session:
        for sql in (
            f"SELECT k, count(*) AS n, max(ts) AS last FROM '{year}' GROUP BY k ORDER BY k",
            f"SELECT count(*) AS n FROM '{year}' WHERE ts IS NULL",
        ):
            text = session.sql(sql).plan()
            if " progress=" not in text:
                text = text.replace(", ts)", ", ts) progress=ts").replace("columns=(ts)", "columns=(ts) progress=ts")
            assert "progress=ts" in text
            plan = parse_plan(text, session.catalog)
            assert plan.text() == text
            path = tmp_path / "q.plan"
            path.write_text(text)
            assert tsql.load_plan(path).run(session).arrow().equals(session.sql(sql).arrow())


def test_explain_analyze_counts_the_rows_of_steps(year: str, small_rounds: None) -> None:
    with tsql.connect(threads=2) as session:
        text = session.sql(QUERY.format(year)).explain("analyze")
        groups = next(line for line in text.splitlines() if line.startswith(("groups", "total")))
        assert f"{len(expected_of(year)):,} rows" in groups


def test_a_plan_file_has_no_logical_plan(year: str, tmp_path: Path) -> None:
    with tsql.connect(threads=2) as session:
        path = tmp_path / "q.plan"
        path.write_text(session.sql(QUERY.format(year)).plan())
        with pytest.raises(tsql.PlanError, match="a plan file has no logical plan"):
            tsql.load_plan(path).run(session).explain("logical")


def test_a_join_of_two_scans_goes_on_with_the_one_behind(year: str, small_rounds: None, tmp_path: Path) -> None:
    with tsql.connect(threads=2) as session:
        sql = (
            f"SELECT a.k, a.v, b.v AS w FROM '{year}' a JOIN '{year}' b ON a.k = b.k AND b.ts BETWEEN a.ts AND "
            "a.ts + INTERVAL '1 hour'"
        )
        text = session.sql(sql).plan().replace("columns=(k, v, ts)", "columns=(k, v, ts) progress=ts")
        assert text.count("progress=ts") == 2
        path = tmp_path / "q.plan"
        path.write_text(text)
        ours = tsql.load_plan(path).run(session).fetchall()
    assert sorted(ours, key=repr) == sorted(duckdb.sql(sql).fetchall(), key=repr)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("progress=k", "progress=k: it is a TIMESTAMP or DATE among the columns"),
        ("progress=nothing", "progress: the scan has no column nothing"),
    ],
)
def test_progress_that_cannot_be(year: str, change: str, message: str) -> None:
    with tsql.connect(threads=2) as session:
        text = session.sql(QUERY.format(year)).plan().replace("columns=(k, v, ts)", f"columns=(k, v, ts) {change}")
        with pytest.raises(tsql.PlanError, match=message):
            parse_plan(text, session.catalog)


def test_tables_in_memory_have_no_progress() -> None:
    with tsql.connect(threads=2) as session:
        session.register("t", pa.table({"ts": pa.array([1, 2], pa.timestamp("us"))}))
        text = session.sql("SELECT max(ts) AS m FROM t").plan().replace("columns=(ts)", "columns=(ts) progress=ts")
        with pytest.raises(tsql.PlanError, match="of files that tell its bounds"):
            parse_plan(text, session.catalog)


def test_a_cluster_has_no_progress(year: str, small_rounds: None, tmp_path: Path) -> None:
    with tsql.connect(threads=2) as session:
        path = tmp_path / "q.plan"
        path.write_text(
            session.sql(QUERY.format(year))
            .plan()
            .replace("target local", "target spark")
            .replace("scope=local", "scope=global")
        )
        with pytest.raises(tsql.PlanError, match="a scan in the order of a time runs in one process"):
            tsql.load_plan(path).run(session).arrow()


def test_parts_without_bounds_come_first(year: str) -> None:
    with tsql.connect(threads=2) as session:
        text = session.sql(QUERY.format(year)).plan().replace("columns=(k, v, ts)", "columns=(k, v, ts) progress=ts")
        scan = bounded.scans_of(parse_plan(text, session.catalog))[0]
        parts = bounded.timed_splits(scan)
        assert [t for t, _ in parts] == sorted(t for t, _ in parts)
        unknown = parts[3][1]
        scan.source.split_bounds = lambda split, column, known=scan.source.split_bounds: (
            None if split.order == unknown.order else known(split, column)
        )
        assert [split.order for t, split in bounded.timed_splits(scan) if t is None] == [unknown.order]
        assert bounded.timed_splits(scan)[0][0] is None
