"""What the page asks about names, texts and plans; how a studio begins and ends."""

from __future__ import annotations

import gc
import json
import socket
import threading
import weakref
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from websockets.exceptions import ConnectionClosed

import tsql
from tests.patience import wait_until
from tests.studio.page import GatedBackend, Page, opened
from tsql.kernels.expr.errors import CatalogError
from tsql.studio import Studio, serve
from tsql.studio.history import History

GROUPED = "SELECT g, sum(k) AS s FROM t GROUP BY g ORDER BY g"


def threads() -> list[str]:
    """The studio's threads."""
    return [one.name for one in threading.enumerate() if one.name.startswith("tsql-studio")]


def test_hello(db: tsql.Session, page: Page, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "day": pa.array([0], pa.date32())}), tmp_path / "f.parquet")
    db.sql("CREATE TABLE own (id INTEGER PRIMARY KEY, name VARCHAR)")
    db.sql("INSERT INTO own VALUES (1, 'a'), (2, 'b')")
    db.sql(f"CREATE VIEW files AS FROM '{tmp_path / 'f.parquet'}'")
    db.sql("CREATE VIEW broken AS FROM own")
    db.sql("DROP TABLE own")
    db.sql("CREATE TABLE two AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(id, name)")
    found = page.answer("hello")
    assert found["type"] == "hello" and found["version"] == tsql.__version__
    assert found["read_only"] is False and found["database"] is None
    shown = {
        one["name"]: (one["kind"], one["rows"], [tuple(c.values()) for c in one["columns"]]) for one in found["tables"]
    }
    assert shown == {
        "t": ("table", 9000, [("g", "VARCHAR"), ("k", "BIGINT"), ("x", "DOUBLE")]),
        "two": ("table", 2, [("id", "INTEGER"), ("name", "VARCHAR")]),
        "files": ("view", 1, [("a", "BIGINT"), ("day", "DATE")]),
        "broken": ("view", None, []),
    }
    functions = {(one["name"], one["kind"]) for one in found["functions"]}
    assert {
        ("abs", "scalar"),
        ("sum", "aggregate"),
        ("read_parquet", "table"),
        ("range", "table"),
        ("tumble", "table"),
        ("lag", "window"),
    } <= functions
    assert {"SELECT", "PROGRESSIVE"} <= set(found["keywords"]) and found["history"] == []


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        (GROUPED, None),
        ("SELECT nothing FROM t", (1, 8, 1, 15)),
        ("SELECT 1;\n\n  SELECT g,\n  nothing FROM t; SELECT 2", (4, 3, 4, 10)),
        ("SELECT '🙂', \"no such\"", (1, 14, 1, 23)),
        ("SELECT 1 +", (1, 10, 1, 11)),
        ("SELECT 'open", (1, 8, 1, 9)),
        ("CREATE TABLE a AS SELECT 1 AS x; SELECT x FROM a", None),
        ("CREATE TABLE a AS SELECT 1 AS x; SELECT x FROM a WHERE", (1, 50, 1, 55)),
        ("", (1, 1, 1, 1)),
        ("-- nothing", (1, 1, 1, 2)),
        ("SELECT $x", (1, 8, 1, 9)),
        ("\ud800", (1, 1, 1, 2)),
    ],
)
def test_check(db: tsql.Session, page: Page, sql: str, place: tuple[int, int, int, int] | None) -> None:
    found = page.answer("check", sql=sql)
    assert found["type"] == "checked" and (found["error"] is None) == (place is None), found
    if place is not None:
        error = found["error"]
        assert tuple(error[name] for name in ("line", "column", "end_line", "end_column")) == place, error
        assert error["message"]
    assert db.tables() == ["t"], "nothing runs"


def test_errors_of_other_texts(db: tsql.Session, page: Page) -> None:
    """A place in a view is none in the text of the page."""
    db.sql("CREATE TABLE own AS SELECT 1 AS a")
    db.sql("CREATE VIEW v AS SELECT\n a FROM own")
    db.sql("CREATE OR REPLACE TABLE own AS SELECT 1 AS b")
    error = page.answer("check", sql="SELECT * FROM v")["error"]
    assert "a" in error["message"] and (error["line"] is None or error["line"] == 1)


def test_complete(page: Page) -> None:
    found = page.answer("complete", sql="SELECT '🙂', su FROM t", position=15)
    assert found["type"] == "completions" and found["start"] == 13
    assert {("sum", "function"), ("summarize", "keyword")} <= {(one["text"], one["kind"]) for one in found["items"]}
    assert all(set(one) == {"text", "kind", "about"} for one in found["items"])
    columns = page.answer("complete", sql="SELECT x", position=8)["items"]
    assert ("x", "column") in {(one["text"], one["kind"]) for one in columns}
    assert page.answer("complete", sql="SELECT ", position=999)["items"] == []


def test_complete_columns(db: tsql.Session, page: Page, tmp_path: Path) -> None:
    """Columns of views, and those of the table that stands before a dot."""
    pq.write_table(pa.table({"day": [1], "day two": [2]}), tmp_path / "f.parquet")
    db.sql(f"CREATE VIEW files AS FROM '{tmp_path / 'f.parquet'}'")

    def offered(sql: str, position: int) -> list[str]:
        return [one["text"] for one in page.answer("complete", sql=sql, position=position)["items"]]

    assert offered("SELECT da FROM files", 9)[:2] == ["day", '"day two"']
    assert offered("SELECT f. FROM files f JOIN t ON true", 9) == ["day", '"day two"']
    assert offered("SELECT t.x FROM files AS f, t", 10) == ["x"]
    assert offered("SELECT x.g FROM files AS f JOIN t AS x", 10) == ["g"]
    assert offered('SELECT "x y".g FROM t "x y"', 14) == ["g"]
    db.sql("CREATE OR REPLACE VIEW files AS SELECT 1 AS other")
    assert offered("SELECT files. FROM files", 13) == ["other"]


def test_plan(page: Page) -> None:
    found = page.answer("plan", sql=f"SELECT 1;\n{GROUPED};")
    assert found["type"] == "plan" and found["error"] is None and found["notes"] == []
    lines = found["file"].split("\n")
    steps = {step["name"]: step for step in found["steps"]}
    assert [step["op"] for step in found["steps"]] == ["scan", "aggregate", "gather", "aggregate", "sort"]
    for step in found["steps"]:
        assert lines[step["line"] - 1].strip() == step["text"] and step["text"].startswith(f"{step['name']} ")
        assert set(step["inputs"]) <= set(steps)
    assert steps["t"]["rows"] == 9000 and steps["t"]["shards"] == 2 and steps["t"]["scope"] is None
    gather = next(step for step in found["steps"] if step["op"] == "gather")
    assert gather["is_movement"] and gather["scope"] == "local" and gather["shards"] == 1

    again = page.answer("plan", plan=found["file"])
    assert again["error"] is None and again["file"] == found["file"]
    for one, other in zip(found["steps"], again["steps"], strict=True):
        assert {**one, "rows": 0} == {**other, "rows": 0}, "estimates know less of a plan file"


def test_plans_with_errors(page: Page) -> None:
    assert page.answer("plan", sql="SELECT nothing FROM t")["error"]["column"] == 8
    assert "no plan" in page.answer("plan", sql="SHOW TABLES")["error"]["message"]
    file = page.answer("plan", sql=GROUPED)["file"]
    bad = file.replace("s=sum(k)", "s=sum(nothing)", 1)
    wrong = page.answer("plan", plan=bad)
    line = next(number for number, text in enumerate(file.split("\n"), 1) if "s=sum(k)" in text)
    assert wrong["error"]["line"] == line and wrong["steps"] == [] and wrong["file"] is None
    told = page.told(page.ask("run", plan=bad))
    assert told.last["type"] == "error" and told.last["line"] == line
    # Without the step that gathers, the plan has an unmet requirement.
    kept = [text for text in file.split("\n") if " gather " not in text]
    loose = page.answer("plan", plan="\n".join(kept).replace("aggregate gathered", "aggregate partial"))
    assert loose["error"]["line"] is not None


def test_history(page: Page, tmp_path: Path) -> None:
    page.run("SELECT 1 AS one")
    page.run("SELECT 'a'::INTEGER")
    found = page.answer("history")
    assert found["type"] == "history"
    assert [(one["sql"], one["rows"], one["error"] is None) for one in found["history"]] == [
        ("SELECT 'a'::INTEGER", None, False),
        ("SELECT 1 AS one", 1, True),
    ]
    assert all(one["ms"] > 0 and one["at"] for one in found["history"])


def test_history_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.jsonl"
    History(path).add("SELECT 'ä'", "2024-01-01T00:00:00+00:00", 1.5, 1, None)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("a") as file:
        file.write('damaged\n[]\n{"sql": 3}\n')
    again = History(path)
    assert [one["sql"] for one in again.entries()] == ["SELECT 'ä'"]
    again.add("SELECT 2", "2024-01-01T00:00:00+00:00", 1, None, "no")
    assert [one["sql"] for one in History(path).entries()] == ["SELECT 2", "SELECT 'ä'"]
    path.write_text("".join(json.dumps({**again.entries()[0], "ms": i}) + "\n" for i in range(2_001)))
    History(path)
    assert len(path.read_text().splitlines()) == 1_000
    # What cannot be written is left alone.
    (tmp_path / "file").write_text("")
    History(tmp_path / "file" / "h.jsonl").add("SELECT 1", "", 1, 1, None)


def test_context_and_two_studios(db: tsql.Session) -> None:
    with serve(db) as one, db.studio(read_only=True) as two:
        assert one.address != two.address and one.guards.token != two.guards.token
        with opened(one) as page, opened(two) as other:
            assert page.run("SELECT count(*) FROM t").rows == [(9000,)]
            assert other.answer("hello")["read_only"] is True
    one.close()
    assert db.sql("SELECT 1").fetchall() == [(1,)], "the session goes on"


def test_port_in_use(db: tsql.Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CatalogError, match=f"cannot be served on 127.0.0.1:{port}: .*in use"):
            serve(db, port=port)
    with pytest.raises(CatalogError, match="cannot be served"):
        serve(db, port=70_000)
    with serve(db, port=port) as found:
        assert found.guards.port == port


def test_closed_session(db: tsql.Session, page: Page) -> None:
    db.close()
    assert "closed" in page.answer("check", sql="SELECT 1")["message"]
    assert "closed" in page.run("SELECT 1").last["message"]


def test_nothing_is_left(gated: Studio, backend: GatedBackend) -> None:
    """Closing the studio ends a query in its middle, its threads and its socket, and frees its result."""
    before = set(threads())
    assert before == {"tsql-studio"}
    with opened(gated) as page:
        run = page.ask("run", sql=f"{GROUPED} PROGRESSIVE EVERY 10 PERCENT")
        backend.gate.release()
        page.snapshot(run)
        (connection,) = gated._connections
        result = weakref.ref(connection.panels[None].result)
        del connection
        assert result() is not None
        gated.close()
        assert backend.released.wait(60)
        with pytest.raises(ConnectionClosed):
            while True:
                page.next()
    assert wait_until(lambda: not threads()), threads()
    gc.collect()
    assert result() is None
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", gated.guards.port), timeout=1)


def test_a_connection_that_closes(gated: Studio, backend: GatedBackend) -> None:
    """A page that goes away ends its query, with a farewell or without."""
    for is_polite in (True, False):
        backend.released.clear()
        with opened(gated) as page:
            run = page.ask("run", sql=f"{GROUPED} PROGRESSIVE EVERY 10 PERCENT")
            backend.gate.release()
            page.snapshot(run)
            if is_polite:
                page.socket.close()
            else:
                page.socket.socket.shutdown(socket.SHUT_RDWR)
            assert backend.released.wait(60)
            assert wait_until(lambda: threads() == ["tsql-studio"]), threads()
            assert wait_until(lambda: not gated._connections)


def test_a_page_that_does_not_read(gated: Studio, backend: GatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing does not wait for a page that stopped reading while rows were being sent."""
    monkeypatch.setattr("tsql.studio.connection.SEND_SECONDS", 0.01)
    with opened(gated) as page:
        done = page.run("SELECT range AS r, repeat('x', 1000) AS s FROM range(50000)")
        assert done.last["type"] == "done"
        for _ in range(10):
            page.ask("rows", of=done.last["id"], first=0, count=50_000)
        (connection,) = gated._connections
        assert wait_until(lambda: connection._outbox.thread.is_alive())
        gated.close()
    assert wait_until(lambda: not threads()), threads()
