"""TPC-H data and queries: made once, made whole, understood by DuckDB, and answered by this project as by DuckDB."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.duck import empty_duckdb
from tsql.kernels.process.private_folder import make_folders
from tsql.tpch import data
from tsql.tpch.__main__ import main
from tsql.tpch.check import Oracle, fill
from tsql.tpch.engines import Tsql
from tsql.tpch.queries import NUMBERS, queries, query

SCALE = 0.001


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the data. Tests that are not about making it use what others have made."""
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def copier(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the generator, which takes two seconds for the smallest scale: what copies tables that are
    there."""
    monkeypatch.delenv("TSQL_DATA")
    made = data.tables(SCALE)["region"].parent
    monkeypatch.setenv("TSQL_DATA", str(folder))
    program = folder / "copier"
    program.write_text(f'#!/bin/sh\nexec cp -r "{made}" "$5"\n')
    program.chmod(0o755)
    monkeypatch.setattr(data, "_generator", lambda: str(program))


def test_data_is_made_once(folder: Path) -> None:
    paths = data.tables(SCALE)
    assert set(paths) == set(data.TABLES)
    assert pq.read_metadata(paths["region"]).num_rows == 5
    assert pq.read_metadata(paths["orders"]).num_rows == 1500
    before = {path: path.stat().st_mtime_ns for path in paths.values()}
    assert data.tables(SCALE) == paths
    assert before == {path: path.stat().st_mtime_ns for path in paths.values()}
    assert [path.name for path in (folder / "tpch").iterdir()] == ["sf0.001"], "temporary folders are removed"


def test_damaged_data_is_made_again(folder: Path, copier: None) -> None:
    (folder / "tpch" / f"sf{SCALE:g}").mkdir(parents=True)
    paths = {table: folder / "tpch" / f"sf{SCALE:g}" / f"{table}.parquet" for table in data.TABLES}
    for path in paths.values():
        path.write_text("of an older run")
    assert data.tables(SCALE) == paths, "what is there is not looked into"
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


def test_folders_of_data_are_the_users_own(tmp_path: Path) -> None:
    """With a umask that lets the group write, too: the compile cache beside it is not kept below a folder that others
    can write to."""
    umask = os.umask(0o002)
    try:
        make_folders(tmp_path / "tsql" / "data" / "tpch")
        make_folders(tmp_path / "tsql" / "data")
    finally:
        os.umask(umask)
    assert [oct(path.stat().st_mode & 0o777) for path in sorted(tmp_path.rglob("*"))] == ["0o700"] * 3


def test_queries_run() -> None:
    connection = empty_duckdb()
    for table, path in data.tables(SCALE).items():
        connection.execute(f"CREATE VIEW {table} AS FROM '{path}'")
    for number, sql in queries(SCALE).items():
        assert connection.execute(sql).fetchall() is not None, number


def test_query_texts() -> None:
    assert "0.0001\n" in query(11) and "0.01\n" in query(11, 0.01) and "0.00001\n" in query(11, 10)
    with pytest.raises(ValueError, match="queries 1 to 22, not 23"):
        query(23)


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--scale", "0.001"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert main(["query", "6"]) == 0
    assert capsys.readouterr().out.startswith("SELECT sum(l_extendedprice * l_discount)")
    with pytest.raises(SystemExit, match="2"):
        main(["data", "--scale", "-1"])


def test_check_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--scale", "0.001,0.01", "--queries", "1,6"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "scale 0.001, tsql, query 1: ok" and out[-1] == "all 4 answers are as DuckDB's"


def test_check_command_tells_what_differs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = data.tables(SCALE)
    other = {**paths, "lineitem": data.tables(0.01)["lineitem"]}
    monkeypatch.setattr("tsql.tpch.check.fill", lambda engine, _, how: fill(engine, other, how))
    assert main(["check", "--scale", "0.001", "--queries", "6"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "scale 0.001, tsql, query 6: wrong answer"
    assert out[1].startswith("  row 1, column revenue: ") and ", expected " in out[1]
    assert out[2] == "1 of 1 answers are not as DuckDB's"


def test_run_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--scale", "0.001", "--queries", "6,1", "--source", "parquet", "--rows", "2"]) == 0
    out = capsys.readouterr().out
    assert (
        "query 6: 1 row, " in out and "query 1: 4 rows, " in out and out.count("count_order") == 1 and " 2 rows" in out
    )


def test_run_command_goes_on_after_a_refusal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tsql.tpch.check.query",
        lambda number, scale: "SELECT none FROM lineitem" if number == 1 else query(number, scale),
    )
    assert main(["run", "--scale", "0.001", "--queries", "1,6", "--rows", "0"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("query 1: not run: ") and second.startswith("query 6: 1 row, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--queries", "23"], "TPC-H has queries 1 to 22, not 23"),
        (["check", "--engines", "tsql,oracle"], "unknown: oracle"),
        (["bench", "--modes", "warm"], "unknown: warm"),
        (["bench", "--runs", "0"], "0 is too few"),
        (["bench", "--chart", "nowhere/chart.svg"], "in a folder that does not exist"),
        (["check", "--scale", "inf"], "a scale factor is a positive number, not inf"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_unknown_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--scale", "0.001", "--backend", "abacus"]) == 1
    assert capsys.readouterr().err.startswith("tpch: ")


@pytest.fixture(scope="module")
def loaded() -> Iterator[tuple[Tsql, Oracle]]:
    """This project with the tables of scale 0.01 in memory, and DuckDB's answers."""
    paths = data.tables(0.01)
    engine, oracle = Tsql(threads=2), Oracle(0.01, paths)
    fill(engine, paths, "memory")
    yield engine, oracle
    engine.close()
    oracle.close()


@pytest.mark.parametrize("number", NUMBERS)
def test_answers(loaded: tuple[Tsql, Oracle], number: int) -> None:
    engine, oracle = loaded
    outcome = oracle.compare("tsql", number, engine.tpch(number, query(number, 0.01), 0.01))
    assert outcome.right, str(outcome)
