"""`explain time`: what a live query holds, until when, and what could never answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import tsql
from tsql.cli.command import main
from tsql.kernels.expr.errors import CatalogError

STREAM = """CREATE STREAM clicks (id BIGINT, page VARCHAR, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
WITH (connector = 'json', path = '{folder}/*.json', follow = true)"""


@pytest.fixture
def db(tmp_path: Path):  # type: ignore[no-untyped-def]
    with tsql.connect(threads=1) as session:
        session.execute(STREAM.format(folder=tmp_path))
        session.register("pages", [{"page": "home", "title": "Home"}])
        yield session


def test_windows(db: tsql.Session) -> None:
    text = db.sql(
        "SELECT window_start, page, count(*) AS n FROM TUMBLE(clicks, ts, INTERVAL '1 minute') GROUP BY ALL EMIT FINAL"
    ).explain("time")
    assert text.splitlines() == [
        "stream clicks: WATERMARK FOR ts AS ts - INTERVAL '5 seconds'; does not end",
        "rows leave: once nothing can change them",
        "step total (aggregate): holds groups until a time among their keys has passed",
    ]


def test_what_could_never_answer(db: tsql.Session) -> None:
    text = db.sql("SELECT page, count(*) AS n FROM clicks GROUP BY page").explain("time")
    assert "  over a stream that does not end: groups have no time among their keys" in text
    assert "  instead: group by a window of time" in text


def test_a_table_beside_a_stream_is_no_step_that_waits(db: tsql.Session) -> None:
    text = db.sql("SELECT id, title FROM clicks JOIN pages ON clicks.page = pages.page EMIT CHANGES").explain("time")
    assert "step" not in text and "rows leave: as soon as they are known" in text


def test_a_plan_file(db: tsql.Session) -> None:
    query = db.sql("SELECT window_start, count(*) AS n FROM TUMBLE(clicks, ts, INTERVAL '1 minute') GROUP BY ALL")
    assert tsql.load_plan_text(query.plan()).run(db).explain("time").startswith("stream clicks: WATERMARK FOR ts")


def test_tables_alone_wait_for_nothing(db: tsql.Session) -> None:
    with pytest.raises(CatalogError, match="the query reads no stream, so nothing in it waits for time"):
        db.sql("FROM pages").explain("time")


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "q.sql"
    script.write_text(f"{STREAM.format(folder=tmp_path)};\nSELECT id FROM clicks ORDER BY ts;")
    assert main(["explain", "--time", str(script)]) == 0
    assert "holds its rows until their time has passed" in capsys.readouterr().out
