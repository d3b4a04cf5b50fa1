"""Databases on disk: what is committed is there when they are opened again; locks, laziness, damage."""

from __future__ import annotations

import functools
import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tsql
from tsql.kernels.blocks.encode import BLOCK_ROWS
from tsql.kernels.expr.errors import CatalogError, ConstraintError, StorageError

ROWS = 3 * BLOCK_ROWS + 17


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@functools.cache
def wide(rows: int = ROWS) -> pa.Table:
    """Every encoding: narrow and wide integers, dictionaries, plain strings, decimals, floats, booleans, NULLs."""
    rng = np.random.default_rng(3)
    numbers = np.arange(rows)
    mask = rng.random(rows) < 0.02
    exact = pa.array(numbers).cast(pa.decimal128(19, 0))
    spans = pa.array([pa.MonthDayNano([months, 1, 0]) for months in range(5)])
    return pa.table(
        {
            "id": pa.array(numbers),
            "small": pa.array((numbers % 200).astype(np.int16), mask=mask),
            "word": pa.array([f"word {n}" for n in range(300)]).take(pa.array(numbers % 300)),
            "text": pa.array(
                [
                    None if m else f"text {n} {n * 7919 % 104729}"
                    for n, m in zip(numbers.tolist(), mask.tolist(), strict=True)
                ]
            ),
            "price": pc.multiply(exact, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(15, 2)),
            "huge": pc.multiply(exact.cast(pa.decimal128(16, 0)), pa.scalar(Decimal(10**20))).cast(
                pa.decimal128(38, 0)
            ),
            "x": pa.array(rng.normal(size=rows), mask=mask),
            "flag": pa.array(numbers % 3 == 0, mask=mask),
            "day": pa.array((np.datetime64("2000-01-01") + numbers % 5000).astype("datetime64[D]")),
            "span": spans.take(pa.array(numbers % 5)),
        }
    )


SUMMARY = (
    "SELECT count(*), sum(id), sum(small), min(word), max(text), sum(price), max(huge), count(x), "
    "count(flag), max(day) FROM wide"
)


def test_everything_survives(path: Path) -> None:
    table = wide()
    with tsql.connect(path) as db:
        db.register("given", table)
        db.execute("CREATE TABLE wide AS SELECT * FROM given")
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR NOT NULL DEFAULT 'x', CHECK (id > 0))")
        db.execute(
            "INSERT INTO t (id) VALUES (1), (2); CREATE VIEW v AS SELECT id FROM t; CREATE MACRO twice(a) AS a * 2"
        )
        db.execute("CREATE TEMP TABLE gone AS SELECT 1 AS one")
        expected, rows = db.sql(SUMMARY).fetchall(), db.table("wide").arrow()
    with tsql.connect(path) as db:
        assert db.tables() == ["t", "v", "wide"]
        assert db.sql(SUMMARY).fetchall() == expected
        assert db.table("wide").arrow().equals(rows)
        assert db.sql("SELECT twice(id) AS d FROM v ORDER BY d").fetchall() == [(2,), (4,)]
        assert db.sql("SELECT word, count(*) AS n FROM wide GROUP BY word ORDER BY word LIMIT 1").fetchall() == [
            ("word 0", -(-ROWS // 300))
        ]
        with pytest.raises(ConstraintError, match="violates primary key"):
            db.execute("INSERT INTO t (id) VALUES (2)")
        with pytest.raises(ConstraintError, match="CHECK constraint failed"):
            db.execute("INSERT INTO t (id) VALUES (-1)")


def test_changes_survive(path: Path) -> None:
    with tsql.connect(path) as db:
        db.register("given", wide())
        db.execute("CREATE TABLE wide AS SELECT * FROM given")
        db.execute("DELETE FROM wide WHERE id = 5")
        db.execute("UPDATE wide SET word = 'a word that is new' WHERE id = 70000")
        db.execute("INSERT INTO wide SELECT * FROM given WHERE id < 3")
        expected = db.sql(SUMMARY).fetchall()
    with tsql.connect(path) as db:
        assert db.sql(SUMMARY).fetchall() == expected
        assert db.sql("SELECT word FROM wide WHERE id = 70000").fetchall() == [("a word that is new",)]
        db.execute(
            "ALTER TABLE wide RENAME COLUMN word TO w; ALTER TABLE wide DROP COLUMN huge; ALTER TABLE wide "
            "ADD COLUMN n INTEGER DEFAULT 4"
        )
        db.execute("CHECKPOINT")
    with tsql.connect(path) as db:
        assert db.sql("SELECT sum(n), count(w), max(w) FROM wide").fetchall() == [(4 * (ROWS + 2), ROWS + 2, "word 99")]
        assert "huge" not in db.table("wide").columns


def test_a_change_writes_only_what_changed(path: Path) -> None:
    with tsql.connect(path) as db:
        db.register("given", wide())
        db.execute("CREATE TABLE wide AS SELECT * FROM given")
        before = {file.name: file.stat().st_mtime_ns for file in path.glob("data-*")}
        whole = sum((path / name).stat().st_size for name in before)
        db.execute("UPDATE wide SET small = 1 WHERE id = 100000")
        added = [file for file in path.glob("data-*") if file.name not in before]
        assert sum(file.stat().st_size for file in added) < whole / 20
        assert all((path / name).stat().st_mtime_ns == time for name, time in before.items())


def test_statistics_survive(path: Path) -> None:
    with tsql.connect(path) as db:
        db.register("given", wide())
        db.execute("CREATE TABLE wide AS SELECT * FROM given; INSERT INTO wide SELECT * FROM given WHERE id < 10")
        expected = db.catalog.lookup("wide").statistics()
    with tsql.connect(path) as db:
        found = db.catalog.lookup("wide").statistics()
        assert found.rows == expected.rows
        assert dict(found.columns) == dict(expected.columns)


def test_opening_reads_no_columns(path: Path) -> None:
    with tsql.connect(path) as db:
        db.register("given", wide())
        db.execute("CREATE TABLE wide AS SELECT * FROM given")
    for file in path.glob("data-*"):
        content = bytearray(file.read_bytes())
        content[100] ^= 0xFF  # the first column, id
        file.write_bytes(content)
    with tsql.connect(path) as db:
        assert db.sql("SELECT count(*), max(word) FROM wide").fetchall() == [(ROWS, "word 99")]
        with pytest.raises(StorageError, match="data-.*is damaged: the checksum of a column differs"):
            db.sql("SELECT sum(id) FROM wide").fetchall()


def test_rollback_and_commit(path: Path) -> None:
    with tsql.connect(path) as db:
        db.execute(
            "CREATE TABLE t (a INTEGER); BEGIN; INSERT INTO t VALUES (1); ROLLBACK; BEGIN; INSERT INTO t VALUES (2)"
        )
    with tsql.connect(path) as db:
        assert db.sql("SELECT * FROM t").fetchall() == []
        db.execute("BEGIN; INSERT INTO t VALUES (3); CREATE TABLE u AS SELECT * FROM t; DROP TABLE t; COMMIT")
    with tsql.connect(path) as db:
        assert db.tables() == ["u"]
        assert db.table("u").fetchall() == [(3,)]


def test_small_inserts(path: Path) -> None:
    with tsql.connect(path) as db:
        db.execute("CREATE TABLE t (a INTEGER, s VARCHAR)")
        for number in range(300):
            db.execute("INSERT INTO t VALUES (?, ?)", [number, f"row {number}"])
        assert len(db.catalog.lookup("t").pieces) < 12
    with tsql.connect(path) as db:
        assert db.sql("SELECT count(*), sum(a), max(s) FROM t").fetchall() == [(300, 44850, "row 99")]


def test_one_writer_many_readers(path: Path) -> None:
    with tsql.connect(path) as db:
        db.register("given", wide())
        db.execute("CREATE TABLE wide AS SELECT * FROM given")
        with pytest.raises(StorageError, match="is open for writing in another process"):
            tsql.connect(path)
        with tsql.connect(path, read_only=True) as reader:
            db.execute("DELETE FROM wide WHERE id % 2 = 0; CHECKPOINT; CHECKPOINT")
            assert reader.sql("SELECT count(*), sum(id) FROM wide").fetchall() == [(ROWS, ROWS * (ROWS - 1) // 2)]
            with pytest.raises(CatalogError, match="open for reading only"):
                reader.execute("DELETE FROM wide")
            reader.execute("CREATE TEMP TABLE mine AS SELECT 1 AS one")
        assert db.sql("SELECT count(*) FROM wide").fetchall() == [(ROWS // 2,)]
    tsql.connect(path).close()


def test_readers_keep_their_snapshot(path: Path) -> None:
    with tsql.connect(path) as db:
        db.register("given", wide())
        db.execute("CREATE TABLE wide AS SELECT * FROM given")
    with tsql.connect(path) as db:
        relation = db.sql("SELECT count(*), sum(id) FROM wide")
        db.execute("DROP TABLE wide; CHECKPOINT")
        assert list(path.glob("data-*")) == []
        assert relation.fetchall() == [(ROWS, ROWS * (ROWS - 1) // 2)]


def test_no_garbage_stays(path: Path) -> None:
    with tsql.connect(path) as db:
        db.register("given", wide())
        for _ in range(3):
            db.execute("CREATE OR REPLACE TABLE wide AS SELECT * FROM given")
        (path / "data-0000.col").write_bytes(b"left by a process that died")
    with tsql.connect(path):
        assert len(list(path.glob("data-*"))) == 1
        assert len(list(path.glob("journal-*"))) == 1


def journal_of(path: Path) -> Path:
    return path / (path / "CURRENT").read_text().strip()


def filled(path: Path) -> None:
    with tsql.connect(path) as db:
        db.execute("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")


def test_a_record_that_is_cut_short_is_no_commit(path: Path) -> None:
    filled(path)
    journal = journal_of(path)
    whole = journal.read_bytes()
    for missing in (1, 9, 100):
        journal.write_bytes(whole[:-missing])
        with tsql.connect(path, read_only=True) as db:
            assert db.sql("SELECT a FROM t").fetchall() == [(1,)]
    with tsql.connect(path) as db:
        db.execute("INSERT INTO t VALUES (3)")
    with tsql.connect(path) as db:
        assert db.sql("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (3,)]


def test_a_damaged_journal_is_an_error(path: Path) -> None:
    filled(path)
    journal = journal_of(path)
    whole = journal.read_bytes()
    for at in (40, len(whole) // 2, len(whole) - 20):
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(StorageError, match="is damaged"):
            tsql.connect(path)
    journal.write_bytes(whole)
    tsql.connect(path).close()


def test_a_damaged_length_destroys_nothing(path: Path) -> None:
    """A length that points behind the end of the file is no write that stopped: nothing is cut, and no file is
    removed."""
    with tsql.connect(path) as db:
        db.register("given", wide())
        db.execute("CREATE TABLE wide AS SELECT * FROM given; CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
    journal = journal_of(path)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:14] + bytes([whole[14] ^ 1]) + whole[15:])
    before = {file.name: file.stat().st_size for file in path.iterdir()}
    for read_only in (True, False):
        with pytest.raises(
            StorageError, match=r"journal-000001 is damaged: the length of a commit differs \(at byte 12\)"
        ):
            tsql.connect(path, read_only=read_only)
    assert {file.name: file.stat().st_size for file in path.iterdir() if file.name != "readers"} == {
        name: size for name, size in before.items() if name != "readers"
    }
    journal.write_bytes(whole)
    with tsql.connect(path) as db:
        assert db.sql("SELECT count(*) FROM wide").fetchall() == [(ROWS,)]


@pytest.mark.parametrize("zeros", [13, 100, 4096])
def test_a_journal_that_was_made_longer_with_zeros(path: Path, zeros: int) -> None:
    filled(path)
    journal = journal_of(path)
    whole = journal.read_bytes()
    journal.write_bytes(whole + bytes(zeros))
    with tsql.connect(path) as db:
        assert journal.read_bytes() == whole
        db.execute("INSERT INTO t VALUES (3)")
    with tsql.connect(path, read_only=True) as db:
        assert db.sql("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,), (3,)]


def test_newer_versions_are_refused(path: Path) -> None:
    filled(path)
    journal = journal_of(path)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:8] + b"\x09\x00\x00\x00" + whole[12:])
    with pytest.raises(StorageError, match=r"newer version of tsql \(format 9; this one reads up to 1\)"):
        tsql.connect(path)


def test_missing_files(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no database at"):
        tsql.connect(path, read_only=True)
    with tsql.connect(path) as db:
        db.register("given", wide(BLOCK_ROWS))
        db.execute("CREATE TABLE wide AS SELECT * FROM given")
    for file in path.glob("data-*"):
        file.unlink()
    with tsql.connect(path) as db, pytest.raises(StorageError, match="cannot open data-.*No such file"):
        db.sql("SELECT sum(id) FROM wide").fetchall()
    journal_of(path).unlink()
    with pytest.raises(StorageError, match="CURRENT names no journal"):
        tsql.connect(path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="is a file; a database is a folder"):
        tsql.connect(tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.jpg").write_text("x")
    with pytest.raises(StorageError, match="no database"):
        tsql.connect(tmp_path / "other")


def test_a_full_disk_undoes_the_statement(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tsql.connect(path) as db:
        db.execute("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StorageError, match="No space left on device"):
                db.execute("INSERT INTO t VALUES (2)")
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]
        db.execute("INSERT INTO t VALUES (3)")
    with tsql.connect(path) as db:
        assert db.sql("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (3,)]
