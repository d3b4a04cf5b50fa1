"""Arguments of a wrong type: one message that says what was expected, and no traceback from the inside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.api.slow import SlowBackend
from tsql.kernels.expr.errors import BindError, CatalogError, StorageError, TsqlError

WRONG = [None, 5, 1.5, b"x", [], {}, object(), ["a", 1], "\0", "\ud800", True]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    with tsql.connect(threads=1) as session:
        session.register("t", {"a": [1]})
        yield session


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "sql": lambda db, x: db.sql(x),
    "sql, parameters": lambda db, x: db.sql("SELECT $a", x),
    "sql, origin": lambda db, x: db.sql("SELECT 1", origin=x),
    "execute": lambda db, x: db.execute(x),
    "statements": lambda db, x: list(db.statements(x)),
    "register": lambda db, x: db.register(x, {"a": [1]}),
    "register, data": lambda db, x: db.register("z", x),
    "register, time": lambda db, x: db.register("z", {"a": [1]}, time=x),
    "register, period": lambda db, x: db.register("z", {"a": [1]}, period=x),
    "unregister": lambda db, x: db.unregister(x),
    "table": lambda db, x: db.table(x),
    "sharded": lambda db, x: db.sharded(x),
    "sharded, columns": lambda db, x: db.sharded("t", x),
    "sharded, shards": lambda db, x: db.sharded("t", shards=x),
    "read_csv": lambda db, x: db.read_csv(x),
    "read_parquet": lambda db, x: db.read_parquet(x),
    "read_json": lambda db, x: db.read_json(x),
    "read_ipc": lambda db, x: db.read_ipc(x),
    "stream": lambda db, x: db.stream(x, {"a": [1]}, time="a"),
    "stream, data": lambda db, x: db.stream("s", x, time="a"),
    "stream, time": lambda db, x: db.stream("s", {"a": [1]}, time=x),
    "stream, time of files": lambda db, x: db.stream("s", "f.csv", time=x),
    "stream, watermark": lambda db, x: db.stream("s", {"a": [1]}, time="a", watermark=x),
    "stream, connector": lambda db, x: db.stream("s", "f.csv", time="a", connector=x),
    "stream, columns": lambda db, x: db.stream("s", "f.csv", time="a", columns=x),
    "write": lambda db, x: db.table("t").write(x),
    "write, format": lambda db, x: db.table("t").write("f.csv", x),
    "explain": lambda db, x: db.table("t").explain(x),
    "candidates": lambda db, x: db.table("t").candidates(x),
    "show": lambda db, x: db.table("t").show(x),
    "show, width": lambda db, x: db.table("t").show(max_width=x),
    "load_plan": lambda db, x: tsql.load_plan(x),
    "load_plan_text": lambda db, x: tsql.load_plan_text(x).run(db),
    "connect": lambda db, x: tsql.connect(x).close(),
    "connect, backend": lambda db, x: tsql.connect(backend=x).sql("SELECT 1").fetchall(),
    "connect, memory_limit": lambda db, x: tsql.connect(memory_limit=x),
    "connect, batch_rows": lambda db, x: tsql.connect(batch_rows=x),
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_of_all_types(db: Any, call: str) -> None:
    """Some of them are what a call takes; what is not is refused."""
    for value in WRONG:
        try:
            CALLS[call](db, value)
        except TsqlError as error:
            assert "Traceback" not in str(error) and error.message


@pytest.mark.parametrize(
    ("call", "value", "message"),
    [
        ("sql", None, "a query is a text, not None"),
        ("execute", 5, "a query is a text, not int"),
        ("statements", b"SELECT 1", "a script is a text, not bytes"),
        ("table", None, "the name of a table is a text, not None"),
        ("register", 7, "the name of a table is a text, not int"),
        ("register, time", 7, r"time \(the name of a column\) is a text, not int"),
        ("register, period", 7, "a period is a pair of columns, the start and the end, not 7"),
        ("read_csv", None, "the name of a file is a path, not None"),
        ("read_csv", ["a", 1], "the name of a file is a path, not int"),
        ("write", None, "the target of a file is a path, not None"),
        ("explain", 3, "a level of EXPLAIN is a text, not int"),
        ("candidates", 1.5, "the number of candidates is a whole number, not float"),
        ("candidates", 0, "the number of candidates is at least 1, not 0"),
        ("show", "all", "max_rows is a whole number, not str"),
        ("load_plan", 5, "a plan file is a path, not int"),
        ("load_plan_text", None, "a plan is a text, not None"),
        ("connect", 5, "a database is a path, not int"),
        ("connect", "a\0b", "has a character that no path has"),
        ("connect, backend", 5, "a backend is the name of one, not 5"),
        ("sharded", None, "a table or a file is a path, not None"),
        ("sharded, columns", 5, "columns are a list of names, not 5"),
        ("stream, columns", "a", "columns is a dict, not str"),
    ],
)
def test_messages(db: Any, call: str, value: Any, message: str) -> None:
    with pytest.raises(TsqlError, match=message):
        CALLS[call](db, value)


def test_only_the_last_folder_of_a_database_is_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"there is no folder {tmp_path}/a for the database {tmp_path}/a/b"):
        tsql.connect(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    tsql.connect(tmp_path / "a").close()
    tsql.connect(tmp_path / "a").close()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("x" * 300, "File name too long"), ("x/" * 3000, "File name too long"), ("file/below", "Not a directory")],
)
def test_paths_that_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").touch()
    for read_only in (False, True):
        with pytest.raises(StorageError, match=f"cannot open .*: {message}"):
            tsql.connect(tmp_path / name, read_only=read_only)


def test_a_database_that_is_not_there_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no database at"):
        tsql.connect(tmp_path / "a", read_only=True)
    assert list(tmp_path.iterdir()) == []


def fetched_by_threads(relation: Any, threads: int, take: Callable[[Any], list[Any]]) -> list[Any]:
    """What several threads fetch from one relation, all together."""
    found: list[list[Any]] = [[] for _ in range(threads)]
    errors: list[BaseException] = []
    begin = threading.Barrier(threads)

    def work(rows: list[Any]) -> None:
        begin.wait()
        try:
            rows += take(relation)
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(rows,)) for rows in found]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    return [row for rows in found for row in rows]


def one_by_one(relation: Any) -> list[Any]:
    rows = []
    while (row := relation.fetchone()) is not None:
        rows.append(row)
    return rows


def test_threads_that_fetch_share_the_rows() -> None:
    """Each row once, whoever has it."""
    with tsql.connect(batch_rows=64) as db:
        relation = db.sql("SELECT i FROM range(5000) t(i)")
        assert sorted(fetched_by_threads(relation, 8, one_by_one)) == [(i,) for i in range(5000)]
        assert relation.fetchone() is None
        relation = db.sql("SELECT i FROM range(5000) t(i)")
        first = relation.fetchone()
        assert first == (0,) and len(relation.fetchall()) == 4999


def test_a_thread_that_waits_for_rows_can_be_cancelled() -> None:
    backend = SlowBackend(first=1)
    relation = tsql.Session(backend).sql("SELECT 1 AS x")
    assert relation.fetchone() == (None,)
    waiting = threading.Thread(target=lambda: pytest.raises(tsql.CancelledError, relation.fetchone))
    waiting.start()
    relation.cancel()
    waiting.join(60)
    assert not waiting.is_alive() and backend.released.wait(60)


# Tables that are Python variables

elsewhere = {"a": [1]}


def test_a_python_variable_is_no_table_without_python_scan(db: Any) -> None:
    db.sql("SET python_scan = false")
    df = {"a": [1, 2]}
    with pytest.raises(BindError, match='table "df" does not exist') as caught:
        db.sql("SELECT * FROM df")
    hint = 'there is a Python variable of this name: db.register("df", df) makes it a table'
    assert caught.value.hint == f"{hint}, and so does SET python_scan = true"
    for call in (db.execute, lambda text: list(db.statements(text))):
        with pytest.raises(BindError) as caught:
            call("SELECT 1; SELECT count(*) FROM elsewhere")
        assert 'db.register("elsewhere", elsewhere)' in caught.value.hint and caught.value.position == 31
    db.register("df", df)
    assert db.sql("SELECT sum(a) FROM df").fetchall() == [(3,)]
    db.execute("PREPARE total AS SELECT sum(a) FROM df")
    db.unregister("df")
    with pytest.raises(BindError) as caught:
        db.sql("EXECUTE total")
    assert 'db.register("df", df)' in caught.value.hint


def test_other_names_get_no_such_hint(db: Any) -> None:
    for name in ("nowhere", "t2", "print"):
        with pytest.raises(BindError) as caught:
            db.sql(f"SELECT * FROM {name}")
        assert "Python" not in (caught.value.hint or "")


def test_variables_of_the_project_itself_are_none_of_the_user(capfd: pytest.CaptureFixture[str]) -> None:
    from tsql.cli.command import main

    sys = main
    assert main(["run", "SELECT * FROM sys"]) == 1 and sys
    assert "Python" not in capfd.readouterr().err


def test_a_closed_session_says_so() -> None:
    db = tsql.connect()
    db.close()
    with pytest.raises(CatalogError, match="the session is closed"):
        db.sql("SELECT 1")
