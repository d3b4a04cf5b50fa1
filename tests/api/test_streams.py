"""Sources with time: CREATE STREAM, PERIOD FOR, WITH (..), their entries in the catalog, and the same in Python."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tsql.kernels.expr.errors import BindError, CatalogError, SourceError, TsqlError
from tsql.kernels.expr.types import TIMESTAMP

START = dt.datetime(2024, 1, 1)
BIDS = pa.table(
    {
        "auction": pa.array([1, 2, 1, 3], pa.int64()),
        "code": ["007", "8", "9", None],
        "ts": pa.array([START, START + dt.timedelta(hours=1), START - dt.timedelta(hours=1), None], pa.timestamp("us")),
    }
)
ROWS = [
    (1, "007", START),
    (2, "8", START + dt.timedelta(hours=1)),
    (1, "9", START - dt.timedelta(hours=1)),
    (3, None, None),
]
FORMATS = [("parquet", "parquet"), ("csv", "csv"), ("ndjson", "json"), ("json", "json"), ("arrow", "arrow")]
PARQUET = "WITH (connector = 'parquet', path = 'bids.parquet')"


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    with tsql.connect(threads=1) as session:
        session.register("rows", BIDS)
        for _, ending in FORMATS:
            session.sql("FROM rows").write(f"bids.{ending}")
        yield session


@pytest.mark.parametrize(("connector", "ending"), FORMATS)
def test_a_stream_reads_every_kind_of_file(db: Any, connector: str, ending: str) -> None:
    db.sql(
        "CREATE STREAM bids (WATERMARK FOR ts AS ts - INTERVAL '5 seconds') WITH (connector = "
        f"'{connector}', path = 'bids.{ending}')"
    )
    assert db.sql("FROM bids").fetchall() == ROWS
    assert db.sql("SELECT count(*), max(ts) FROM bids WHERE auction = 1").fetchall() == [(2, START)]


@pytest.mark.parametrize(("connector", "ending"), FORMATS)
def test_declared_columns_decide_order_and_types(db: Any, connector: str, ending: str) -> None:
    """Text is read as the declared type and never guessed first: '007' stays as it is."""
    db.sql(
        f"CREATE STREAM bids (TS TIMESTAMP, code VARCHAR, auction DOUBLE) WITH (connector = '{connector}', "
        f"path = 'bids.{ending}')"
    )
    found = db.sql("FROM bids")
    assert (found.columns, found.types) == (["TS", "code", "auction"], ["TIMESTAMP", "VARCHAR", "DOUBLE"])
    assert found.fetchall() == [(ts, code, float(auction)) for auction, code, ts in ROWS]
    assert db.sql("SELECT code FROM bids WHERE auction = 2").fetchall() == [("8",)]


def test_folders_patterns_and_lists(db: Any) -> None:
    os.makedirs("parts/day=1")
    os.makedirs("parts/day=2")
    pq.write_table(BIDS.slice(0, 2), "parts/day=1/a.parquet")
    pq.write_table(BIDS.slice(2), "parts/day=2/b.parquet")
    for path in ("parts", "parts/*/*.parquet", "parts/day=1/a.parquet, parts/day=2/*.parquet"):
        db.sql(f"CREATE OR REPLACE STREAM bids WITH (connector = 'parquet', path = '{path}')")
        assert db.sql("SELECT count(*), count(DISTINCT day) FROM bids").fetchall() == [(4, 2)]
    assert db.sql("SELECT auction FROM bids WHERE day = 2 ORDER BY 1").fetchall() == [(1,), (3,)]


def test_files_that_come_later_are_read(db: Any) -> None:
    """Also by a query that was planned before they came; a new column of theirs is not part of the stream."""
    os.makedirs("log")
    pq.write_table(BIDS, "log/1.parquet")
    db.sql("CREATE STREAM bids WITH (path = 'log/*.parquet')")
    assert db.sql("SELECT count(*) FROM bids").fetchall() == [(4,)]
    pq.write_table(BIDS.append_column("more", pa.array([1, 2, 3, 4])), "log/0.parquet")
    assert db.sql("SELECT count(*) FROM bids").fetchall() == [(8,)]
    assert db.sql("FROM bids").columns == ["auction", "code", "ts"]


def test_options_of_the_reader(db: Any) -> None:
    Path("x.csv").write_text("1|2024-01-01 00:00:00\n2|2024-01-02 00:00:00\n")
    db.sql(
        "CREATE STREAM s (n INTEGER, at TIMESTAMP, WATERMARK FOR at AS at) WITH (connector = 'csv', path = "
        "'x.csv', delim = '|', header = FALSE)"
    )
    assert db.sql("FROM s").fetchall() == [(1, START), (2, START + dt.timedelta(days=1))]


def test_the_entry_knows_its_times(db: Any) -> None:
    db.sql(
        "CREATE STREAM bids (auction BIGINT, code VARCHAR, TS TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL "
        "'5 seconds' IDLE TIMEOUT INTERVAL '30 seconds'"
        " ALLOWED LATENESS INTERVAL '1 minute' ON LATE INTO bids_late) WITH (connector = 'parquet', path = "
        "'bids.parquet')"
    )
    entry = db.catalog.entry("bids")
    assert (entry.event_time, entry.period, entry.kind) == ("TS", None, "stream")
    mark = entry.watermark
    assert (mark.column, mark.idle_timeout_us, mark.allowed_lateness_us, mark.on_late, mark.into) == (
        "TS",
        30_000_000,
        60_000_000,
        "INTO",
        "bids_late",
    )
    assert mark.expression.type == TIMESTAMP and mark.expression.columns() == ("TS",)
    assert db.sql("FROM bids_late").fetchall() == [] and db.sql("FROM bids_late").columns == ["auction", "code", "TS"]
    db.sql("CREATE TABLE plain (a INTEGER)")
    db.sql("CREATE VIEW looked AS FROM bids")
    assert [(db.catalog.entry(name).event_time, db.catalog.entry(name).period) for name in ("plain", "looked")] == [
        (None, None)
    ] * 2


def test_show_and_describe(db: Any) -> None:
    db.sql(f"CREATE STREAM bids (WATERMARK FOR ts AS ts - INTERVAL '5 seconds' ON LATE ADJUST) {PARQUET}")
    db.sql("CREATE TABLE files WITH (connector = 'arrow', path = 'bids.arrow')")
    clause = "WATERMARK FOR ts AS ts - INTERVAL '5 seconds' ON LATE ADJUST"
    shown = db.sql("SHOW STREAMS")
    assert shown.columns == ["name", "event_time", "watermark", "connector", "path"]
    assert shown.fetchall() == [("bids", "ts", clause, "parquet", "bids.parquet")]
    assert db.sql("SHOW TABLES").fetchall() == [("bids",), ("files",), ("rows",)]
    assert [row[2] for row in db.sql("SHOW ALL TABLES").fetchall()] == ["bids", "files", "rows"]
    assert db.sql("DESCRIBE bids").fetchall()[2] == ("ts", "TIMESTAMP", "YES", None, None, clause)
    assert [row[5] for row in db.sql("DESCRIBE files").fetchall()] == [None, None, None]


def test_the_text_of_an_entry_makes_it_again(db: Any) -> None:
    db.sql(
        'CREATE STREAM "my bids" (code VARCHAR, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL \'5 '
        "seconds' IDLE TIMEOUT INTERVAL '90 seconds' ON LATE ERROR)"
        " WITH (connector = 'csv', path = 'bids.csv', header = TRUE)"
    )
    before = db.catalog.entry("my bids")
    text = before.create_text("my bids")
    db.sql('DROP STREAM "my bids"')
    db.sql(text)
    assert db.catalog.entry("my bids") == before


def test_drop_replace_and_names(db: Any) -> None:
    db.sql(f"CREATE STREAM bids {PARQUET}")
    for text, message in (
        (f"CREATE STREAM bids {PARQUET}", 'Stream with name "bids" already exists'),
        ("DROP TABLE bids", 'Existing object "bids" is of type Stream, trying to drop type Table'),
        (
            "CREATE OR REPLACE TABLE bids AS SELECT 1 AS a",
            'Existing object "bids" is of type Stream, trying to replace with type Table',
        ),
        ("INSERT INTO bids VALUES (1)", '"bids" is a stream over files: INSERT needs a table'),
        ("DELETE FROM bids", '"bids" is a stream over files: DELETE needs a table'),
        ("DROP STREAM rows", 'Existing object "rows" is of type Table, trying to drop type Stream'),
    ):
        with pytest.raises(CatalogError, match=message):
            db.sql(text)
    db.sql(
        "CREATE STREAM IF NOT EXISTS bids WITH (path = 'nowhere.csv'); CREATE TABLE IF NOT EXISTS bids "
        "WITH (path = 'nowhere.csv')"
    )
    db.sql("CREATE OR REPLACE STREAM bids WITH (connector = 'csv', path = 'bids.csv')")
    assert db.catalog.entry("bids").files.kind == "csv"
    db.sql("DROP STREAM bids; DROP STREAM IF EXISTS bids")
    with pytest.raises(CatalogError, match='Stream with name "bids" does not exist'):
        db.sql("DROP STREAM bids")


def test_transactions(db: Any) -> None:
    db.sql("BEGIN")
    db.sql(f"CREATE STREAM bids (WATERMARK FOR ts AS ts ON LATE INTO late) {PARQUET}")
    assert db.sql("SELECT count(*) FROM bids").fetchall() == [(4,)]
    db.sql("ROLLBACK")
    assert db.tables() == ["rows"]


ERRORS = [
    ("CREATE STREAM s (a INTEGER)", 15, "a stream needs WITH (..) to say where its rows are"),
    ("CREATE STREAM s WITH (connector = 'pulsar', path = 'x')", 23, "unknown connector 'pulsar'"),
    ("CREATE STREAM s WITH (connector = 'kafka', path = 'x')", 44, "unknown option path for connector kafka"),
    (
        "CREATE TABLE s (a INTEGER) WITH (connector = 'kafka', topic = 'x')",
        34,
        "a table is complete, and connector 'kafka' goes on",
    ),
    ("CREATE STREAM s WITH (connector = 'csv')", 17, 'option "path" is missing: a file, a folder or a pattern'),
    ("CREATE STREAM s WITH (connector = 'csv', path = 7)", 42, 'option "path" takes a string'),
    ("CREATE STREAM s WITH (connector = 'csv', path = 'none/*.csv')", 17, "none/*.csv: no file matches this pattern"),
    ("CREATE STREAM s WITH (connector = 'csv', path = 'bids.csv', delimm = ',')", 17,
     "unknown option delimm for csv files"),
    (f"CREATE STREAM s (price DOUBLE) {PARQUET}", 32, "bids.parquet: there is no column price in the file"),
    (f"CREATE STREAM s (auction TIMESTAMP) {PARQUET}", 37,
     "bids.parquet: column auction is BIGINT in the file, which cannot be read as TIMESTAMP"),
    (f"CREATE STREAM s (auction BIGINT NOT NULL) {PARQUET}", 18,
     ("the columns of a stream over files have no constraints and no defaults: its rows are read as they are")),
    (f"CREATE TABLE s (auction BIGINT DEFAULT 1) {PARQUET}", 17,
     "the columns of a table over files have no constraints and no defaults: its rows are read as they are"),
    (f"CREATE STREAM s (WATERMARK FOR auction AS auction) {PARQUET}", 32,
     'column "auction" is BIGINT: the time of a row is TIMESTAMP, TIMESTAMPTZ or DATE'),
    (f"CREATE STREAM s (WATERMARK FOR at AS at) {PARQUET}", 32, 'the time of a row: there is no column "at"'),
    (f"CREATE STREAM s (WATERMARK FOR ts AS auction + 1) {PARQUET}", 38,
     "the watermark is BIGINT: it must be a time, such as ts - INTERVAL '5 seconds'"),
    (f"CREATE STREAM s (WATERMARK FOR ts AS max(ts)) {PARQUET}", 38, "an aggregate is not allowed in WATERMARK"),
    (f"CREATE STREAM s (WATERMARK FOR ts AS late) {PARQUET}", 38, 'column "late" does not exist'),
    ("CREATE TABLE s (a INTEGER, b DATE, PERIOD FOR valid_time (a, b))", 36,
     'column "a" is INTEGER: a period is between columns of type TIMESTAMP, TIMESTAMPTZ or DATE'),
    ("CREATE TABLE s (a TIMESTAMP, b DATE, PERIOD FOR valid_time (a, b))", 38,
     'the columns of a period have one type: "a" is TIMESTAMP, "b" is DATE'),
    ("CREATE TABLE s (a DATE, PERIOD FOR valid_time (a, b))", 25, 'PERIOD FOR: there is no column "b"'),
    ("CREATE TABLE s (a DATE, PERIOD FOR valid_time (a, a))", 25,
     'a period is between two columns, not from "a" to itself'),
    ("CREATE TABLE s (a DATE, b DATE, PERIOD FOR p (a, b), PERIOD FOR q (a, b))", 54, "a table has one PERIOD"),
    ("CREATE VIEW s (PERIOD FOR valid_time (ts, ts)) AS SELECT ts FROM rows", 16, "a PERIOD belongs to a table"),
    ("CREATE TABLE s WITH (path = 'bids.csv') AS SELECT 1", 16,
     "CREATE TABLE reads files WITH (..) or stores the rows of a query, not both"),
    ("CREATE VIEW s AS SELECT 1 AS a EMIT FINAL", 32,
     "EMIT says when a result leaves: it belongs to the query that reads the view"),
    ("SELECT 1 AS a EMIT EVERY INTERVAL '1 second' * 0", 26, "EVERY must be more than zero"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message"), ERRORS)
def test_errors(db: Any, text: str, column: int, message: str) -> None:
    with pytest.raises(TsqlError) as caught:
        db.sql(text)
    assert caught.value.message == message
    assert caught.value.line_column == (1, column)
    assert db.tables() == ["rows"]


def test_a_value_that_does_not_fit_is_an_error_of_the_query(db: Any) -> None:
    db.sql(f"CREATE STREAM s (code INTEGER) {PARQUET}")
    assert db.sql("SELECT sum(code) FROM s").fetchall() == [(24,)]
    pq.write_table(BIDS.set_column(1, "code", pa.array(["1", "2", "x", None])), "bids.parquet")
    with pytest.raises(
        SourceError,
        match=(
            "column code is VARCHAR in the file, and not every value of it can be read as INTEGER: could not "
            "convert 'x'"
        ),
    ):
        db.sql("SELECT sum(code) FROM s").fetchall()
    os.unlink("bids.parquet")
    with pytest.raises(SourceError) as caught:
        db.sql("SELECT * FROM s")
    assert (caught.value.message, caught.value.line_column) == ("bids.parquet: no such file", (1, 15))
    assert db.sql("SHOW ALL TABLES").arrow().num_rows == 2


def test_tables_with_a_period(db: Any) -> None:
    db.sql("CREATE TABLE rates (cur VARCHAR, VS TIMESTAMP, ve TIMESTAMP, PERIOD FOR valid_time (vs, ve))")
    assert db.sql("INSERT INTO rates VALUES ('EUR', TIMESTAMP '2024-01-01', NULL)").fetchall() == [(1,)]
    assert db.catalog.entry("rates").period == ("VS", "ve")
    assert [row[5] for row in db.sql("DESCRIBE rates").fetchall()] == [None, "PERIOD START", "PERIOD END"]
    db.sql("ALTER TABLE rates RENAME COLUMN ve TO until")
    db.sql("ALTER TABLE rates ADD COLUMN note VARCHAR")
    assert db.catalog.entry("rates").period == ("VS", "until")
    with pytest.raises(CatalogError, match='Cannot drop column "until" because there is a PERIOD that depends on it'):
        db.sql("ALTER TABLE rates DROP COLUMN until")
    with pytest.raises(BindError, match="Cannot change the type of a column of a PERIOD"):
        db.sql("ALTER TABLE rates ALTER vs TYPE DATE")
    assert db.sql("UPDATE rates SET until = TIMESTAMP '2025-01-01'").fetchall() == [(1,)]
    assert db.catalog.entry("rates").period == ("VS", "until")


def test_a_period_of_a_query_and_of_files(db: Any) -> None:
    db.sql("CREATE TABLE a (PERIOD FOR valid_time (f, t)) AS SELECT ts AS f, ts + INTERVAL '1 hour' AS t FROM rows")
    db.sql("CREATE TABLE b (s, e, PERIOD FOR valid_time (s, e)) AS SELECT ts, ts FROM rows")
    db.sql("COPY a TO 'a.csv'")
    db.sql(
        "CREATE TEMP TABLE c (f DATE, t DATE, PERIOD FOR valid_time (f, t)) WITH (connector = 'csv', path = 'a.csv')"
    )
    assert [db.catalog.entry(name).period for name in "abc"] == [("f", "t"), ("s", "e"), ("f", "t")]
    assert db.catalog.entry("c").kind == "table" and db.catalog.entry("c").temporary
    with pytest.raises(CatalogError, match='"c" is a table over files: UPDATE needs a table'):
        db.sql("UPDATE c SET f = t")
    db.sql("DROP TABLE c")


def test_a_database_keeps_streams(tmp_path: Path, db: Any) -> None:
    texts = (
        (
            "CREATE STREAM bids (WATERMARK FOR ts AS ts - INTERVAL '5 seconds' ALLOWED LATENESS INTERVAL '2 "
            f"days' ON LATE INTO late) {PARQUET}"
        ),
        "CREATE TABLE rates (cur VARCHAR, vs TIMESTAMP, ve TIMESTAMP, PERIOD FOR valid_time (vs, ve))",
        (
            "CREATE TABLE files (auction DECIMAL(8, 2), ts TIMESTAMP) WITH (connector = 'csv', path = "
            "'bids.csv', header = TRUE)"
        ),
        "CREATE TEMP TABLE passing WITH (path = 'bids.csv')",
        f"CREATE STREAM gone {PARQUET}",
        "DROP STREAM gone",
    )
    with tsql.connect("store", threads=1) as disk:
        for text in texts:
            disk.sql(text)
        before = {name: disk.catalog.entry(name) for name in ("bids", "files")}
    for step in ("opened again", "after a checkpoint"):
        with tsql.connect("store", threads=1) as disk:
            assert disk.tables() == ["bids", "files", "late", "rates"], step
            assert {name: disk.catalog.entry(name) for name in ("bids", "files")} == before
            assert disk.catalog.entry("bids").watermark.expression == before["bids"].watermark.expression
            assert disk.catalog.entry("rates").period == ("vs", "ve")
            assert disk.sql("FROM bids").fetchall() == ROWS
            disk.sql("CHECKPOINT")


def test_python_streams(db: Any) -> None:
    db.stream(
        "bids",
        "bids.csv",
        time="ts",
        watermark="ts - INTERVAL '5 seconds'",
        allowed_lateness=dt.timedelta(minutes=1),
        idle_timeout="2 hours",
        on_late="adjust",
        header=True,
    )
    assert db.sql("SHOW STREAMS").fetchall()[0][2] == (
        "WATERMARK FOR ts AS ts - INTERVAL '5 seconds' IDLE TIMEOUT INTERVAL '2 hours' ALLOWED LATENESS "
        "INTERVAL '1 minute' ON LATE ADJUST"
    )
    db.stream(
        "bids",
        ["bids.parquet", Path("bids.parquet")],
        time="ts",
        columns={"ts": "TIMESTAMP", "code": "VARCHAR"},
        on_late="into",
        late_table="late",
        connector="parquet",
    )
    assert db.sql("SELECT count(*), count(code) FROM bids").fetchall() == [(8, 6)]
    db.stream("live", BIDS, time="ts")
    assert (db.catalog.entry("live").event_time, db.catalog.entry("live").kind) == ("ts", "stream")
    assert db.sql("SELECT count(*) FROM live").fetchall() == [(4,)]
    db.sql("DROP STREAM live")


def test_python_periods(db: Any) -> None:
    data = {"k": [1], "vs": [START], "ve": [START + dt.timedelta(days=1)]}
    db.register("rates", data, period=("VS", "ve"), time="vs")
    assert (db.catalog.entry("rates").period, db.catalog.entry("rates").event_time) == (("vs", "ve"), "vs")
    assert db.sql("SELECT k FROM rates").fetchall() == [(1,)]
    db.sql("DROP TABLE rates")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": "at"}, 'the time of a row: there is no column "at"'),
        ({"time": "auction"}, 'column "auction" is BIGINT: the time of a row is TIMESTAMP, TIMESTAMPTZ or DATE'),
        (
            {"time": "ts", "on_late": "into"},
            'on_late is "drop", "adjust", "error", or "into" with late_table=, not \'into\'',
        ),
        (
            {"time": "ts", "allowed_lateness": "1 month"},
            "allowed_lateness is a timedelta or a text such as \"5 seconds\", not '1 month'",
        ),
        (
            {"time": "ts", "watermark": "auction"},
            "the watermark is BIGINT: it must be a time, such as ts - INTERVAL '5 seconds'",
        ),
        ({"time": "ts", "period": ("ts",)}, "a period is a pair of columns, the start and the end, not ('ts',)"),
        (
            {"time": "ts", "delim": "|"},
            "columns, connector and options are for streams over files, and bad is one over data",
        ),
        ({"time": "ts", "on_late": "into", "late_table": "x"}, "late rows of data in memory cannot go into a table"),
    ],
)
def test_python_errors(db: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError) as caught:
        db.stream("bad", BIDS, **arguments)
    assert caught.value.message == message
    assert "bad" not in db.tables()


EMITS = (
    "FINAL",
    "CHANGES",
    "EVERY INTERVAL '10 seconds'",
    "EVERY INTERVAL '1 second' BEFORE WATERMARK, CHANGES AFTER WATERMARK WITHIN INTERVAL '200 milliseconds'",
)


@pytest.mark.parametrize("emit", EMITS)
def test_emit_never_changes_the_rows(db: Any, emit: str) -> None:
    db.sql(f"CREATE STREAM bids (WATERMARK FOR ts AS ts) {PARQUET}")
    query = "SELECT auction, count(*) AS n FROM bids GROUP BY auction ORDER BY auction"
    assert db.sql(f"{query} EMIT {emit}").fetchall() == db.sql(query).fetchall() == [(1, 2), (2, 1), (3, 1)]
    db.sql(f"CREATE TABLE kept AS {query} EMIT {emit}; INSERT INTO kept {query} EMIT {emit}")
    assert db.sql("SELECT sum(n) FROM kept").fetchall() == [(8,)]
    assert "aggregate" in db.sql(f"EXPLAIN {query} EMIT {emit}").fetchall()[0][1]
    *_, last = db.sql(f"{query} PROGRESSIVE EVERY 10 PERCENT").snapshots()
    assert last.is_final and last.table.to_pydict() == {"auction": [1, 2, 3], "n": [2, 1, 1]}
    for stored in ("CREATE TABLE more AS", "CREATE VIEW more AS", "INSERT INTO kept"):
        with pytest.raises(BindError, match="PROGRESSIVE belongs to a query whose result is shown"):
            db.sql(f"{stored} {query} PROGRESSIVE EVERY 10 PERCENT")


def test_plans_name_streams(db: Any) -> None:
    db.sql("CREATE STREAM bids (ts TIMESTAMP, auction DOUBLE) WITH (connector = 'csv', path = 'bids.csv')")
    relation = db.sql("SELECT auction FROM bids WHERE auction > 1 ORDER BY auction")
    assert "= scan bids columns=(auction)" in relation.plan()
    assert tsql.load_plan_text(relation.plan()).run(db).fetchall() == relation.fetchall() == [(2.0,), (3.0,)]


def test_the_shell_knows_streams(db: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Completion offers their names and columns without opening the files; .schema prints the statement that makes
    one."""
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from tsql.cli.completion import SqlCompleter
    from tsql.cli.shell import Shell

    db.sql(f"CREATE STREAM bids (WATERMARK FOR ts AS ts) {PARQUET}")
    os.unlink("bids.parquet")
    shell = Shell(db)
    found = {
        c.text: c.display_meta_text
        for c in SqlCompleter(db.catalog, shell.commands).get_completions(
            Document("FROM bids SELECT au"), CompleteEvent()
        )
    }
    assert found == {"auction": "column"}
    found = {
        c.text: c.display_meta_text
        for c in SqlCompleter(db.catalog, shell.commands).get_completions(Document("FROM bid"), CompleteEvent())
    }
    assert found == {"bids": "stream"}
    shell.command(".schema bids")
    clause = "auction BIGINT, code VARCHAR, ts TIMESTAMP, WATERMARK FOR ts AS ts"
    assert (
        capsys.readouterr().out
        == f"CREATE STREAM bids ({clause}) WITH (connector = 'parquet', path = 'bids.parquet');\n"
    )
