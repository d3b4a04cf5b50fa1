"""Files of columns that somebody changes while the database is open: no crash, no other values, an error that names the
file."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

import tsql
from tests.patience import wait_until
from tsql.kernels.blocks import content
from tsql.kernels.expr.errors import StorageError

ROWS = 300_000
TOTAL = ROWS * (ROWS - 1) // 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tsql.connect(tmp_path / "db") as db:
        db.execute(f"CREATE TABLE t AS SELECT i, i * 2 AS d, 'text ' || i AS s FROM range({ROWS}) t(i)")
    return tmp_path / "db"


@pytest.fixture
def only_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the memory for columns were used up."""
    monkeypatch.setattr(content, "HELD", content.Held(0))


def the_file(path: Path) -> Path:
    (found,) = path.glob("data-*")
    return found


def test_columns_that_were_read_stay(path: Path) -> None:
    with tsql.connect(path) as db:
        assert db.sql("SELECT sum(i) FROM t").fetchall() == [(TOTAL,)]
        file = the_file(path)
        with open(file, "r+b") as stream:
            stream.write(b"\xff" * 100_000)
        for _ in range(3):
            assert db.sql("SELECT sum(i) FROM t").fetchall() == [(TOTAL,)]
        os.truncate(file, 1000)
        for _ in range(3):
            assert db.sql("SELECT sum(i) FROM t").fetchall() == [(TOTAL,)]
        with pytest.raises(StorageError, match=f"{file.name} is damaged: it is too short"):
            db.sql("SELECT sum(d) FROM t").fetchall()


@pytest.mark.parametrize("change", ["truncated", "overwritten", "emptied"])
def test_columns_that_were_not_read_yet(path: Path, change: str) -> None:
    file = the_file(path)
    with tsql.connect(path) as db:
        db.sql("SELECT count(*) FROM t WHERE i >= 0").fetchall()
        if change == "overwritten":
            file.write_bytes(b"\x55" * file.stat().st_size)
        else:
            os.truncate(file, 0 if change == "emptied" else file.stat().st_size // 2)
        for _ in range(2):
            with pytest.raises(StorageError, match=f"{file.name} is damaged"):
                db.sql("SELECT sum(d), max(s) FROM t").fetchall()


@pytest.mark.usefixtures("only_mapped")
def test_mapped_columns_are_looked_at_before_each_query(path: Path) -> None:
    file = the_file(path)
    whole = file.read_bytes()
    with tsql.connect(path) as db:
        relation = db.sql("SELECT sum(i), max(s) FROM t")
        for _ in range(4):
            assert relation.fetchall() == [(TOTAL, "text 99999")]
        os.truncate(file, 1000)
        for _ in range(2):
            with pytest.raises(StorageError, match=f"{file.name} was changed while the database was open"):
                relation.fetchall()
        with pytest.raises(StorageError, match=f"{file.name} was changed"):
            db.sql("SELECT min(d) FROM t").fetchall()
    file.write_bytes(whole)
    with tsql.connect(path) as db:
        assert db.sql("SELECT sum(i), max(s) FROM t").fetchall() == [(TOTAL, "text 99999")]


@pytest.mark.usefixtures("only_mapped")
def test_removed_files_are_still_read(path: Path) -> None:
    """An older version of a table keeps its mapped file although garbage is collected."""
    with tsql.connect(path) as db:
        relation = db.sql("SELECT sum(i), min(s) FROM t")
        db.execute("DROP TABLE t; CHECKPOINT")
        assert list(path.glob("data-*")) == []
        assert relation.fetchall() == [(TOTAL, "text 0")]


def test_memory_is_given_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = content.Held(1 << 40)
    monkeypatch.setattr(content, "HELD", held)
    with tsql.connect(path) as db:
        db.sql("SELECT sum(i), sum(d) FROM t").fetchall()
        assert held.bytes > ROWS * 4
    del db
    # A thread that compiles the kernels anew may still hold the plan.
    assert wait_until(lambda: gc.collect() >= 0 and held.bytes == 0)
