"""TPC-H data and queries: made once, made whole, and understood by DuckDB."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from tsql.tpch import data
from tsql.tpch.__main__ import main
from tsql.tpch.queries import queries, query

SCALE = 0.001


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))
    return tmp_path


def test_data_is_made_once(folder: Path) -> None:
    paths = data.tables(SCALE)
    assert set(paths) == set(data.TABLES)
    assert pq.read_metadata(paths["region"]).num_rows == 5
    assert pq.read_metadata(paths["orders"]).num_rows == 1500
    before = {path: path.stat().st_mtime_ns for path in paths.values()}
    assert data.tables(SCALE) == paths
    assert before == {path: path.stat().st_mtime_ns for path in paths.values()}
    assert [path.name for path in (folder / "tpch").iterdir()] == ["sf0.001"], "temporary folders are removed"


def test_damaged_data_is_made_again(folder: Path) -> None:
    paths = data.tables(SCALE)
    paths["orders"].unlink()
    assert pq.read_metadata(data.tables(SCALE)["orders"]).num_rows == 1500


def test_two_processes_at_once(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=data.tables, args=(SCALE,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [path.name for path in (folder / "tpch").iterdir()] == ["sf0.001"]


def test_failure_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_generator", lambda: "false")
    with pytest.raises(RuntimeError, match="tpchgen-cli failed at scale 0.001"):
        data.tables(SCALE)
    assert list((folder / "tpch").iterdir()) == []


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TSQL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data.data_folder() == tmp_path / "tsql" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the XDG specification: a relative path is ignored
    assert data.data_folder() == Path.home() / ".cache" / "tsql" / "data"


def test_queries_run(folder: Path) -> None:
    connection = duckdb.connect()
    for table, path in data.tables(SCALE).items():
        connection.execute(f"CREATE VIEW {table} AS FROM '{path}'")
    for number, sql in queries(SCALE).items():
        assert connection.execute(sql).fetchall() is not None, number


def test_query_texts() -> None:
    assert "0.0001\n" in query(11) and "0.01\n" in query(11, 0.01) and "0.00001\n" in query(11, 10)
    with pytest.raises(ValueError, match="queries 1 to 22, not 23"):
        query(23)


def test_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--scale", "0.001"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert main(["query", "6"]) == 0
    assert capsys.readouterr().out.startswith("SELECT sum(l_extendedprice * l_discount)")
    with pytest.raises(SystemExit, match="2"):
        main(["data", "--scale", "-1"])
