"""Files that are written: links, modes and owners stay, nothing is left behind, and what another writer is at work on
is not touched."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tsql.backends.io import whole_files
from tsql.backends.io.writers import write
from tsql.cli import command as cli
from tsql.kernels.expr.errors import ExecutionError, SourceError


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect() as session:
        session.sql("CREATE TABLE t AS SELECT i AS a FROM range(5) r(i)")
        yield session


def copied(db: Any, path: Path) -> None:
    db.sql(f"COPY t TO '{path}' (FORMAT csv)")


def written(db: Any, path: Path) -> None:
    db.sql("FROM t").write(path, "csv")


def compiled(db: Any, path: Path) -> None:
    db.sql(f"COMPILE PLAN '{path}' FOR SELECT * FROM t")


def planned(db: Any, path: Path) -> None:
    assert cli.main(["plan", "SELECT 1", "-o", str(path)]) == 0


def ran(db: Any, path: Path) -> None:
    assert cli.main(["run", "SELECT 1", "-f", "table", "-o", str(path)]) == 0
    assert cli.main(["run", "SELECT 1", "-f", "csv", "-o", str(path)]) == 0


OLD = "plan version 1\n"
"""What is there: any file for most writers, and for those of plans one that starts as a plan does."""

WRITERS = pytest.mark.parametrize("put", [copied, written, compiled, planned, ran])
Put = Callable[[Any, Path], None]
OLD = "plan version 1\n"
"""What is replaced: a plan takes the place of nothing else."""


@WRITERS
def test_links_are_written_through(db: Any, put: Put, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    real, link = tmp_path / "below" / "real", tmp_path / "link"
    real.write_text(OLD)
    link.symlink_to(Path("below") / "real")
    (tmp_path / "second").symlink_to(link)
    put(db, tmp_path / "second")
    assert link.is_symlink() and (tmp_path / "second").is_symlink() and not real.is_symlink()
    assert real.read_text() not in ("", OLD)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "new")
    put(db, dangling)
    assert dangling.is_symlink() and (tmp_path / "new").is_file()
    assert sorted(os.listdir(tmp_path)) == ["below", "dangling", "link", "new", "second"] and os.listdir(
        tmp_path / "below"
    ) == ["real"]


@WRITERS
def test_modes_stay_and_new_files_have_that_of_the_umask(db: Any, put: Put, tmp_path: Path) -> None:
    for mode in (0o640, 0o600, 0o664, 0o755):
        path = tmp_path / f"{mode:o}"
        path.write_text(OLD)
        path.chmod(mode)
        put(db, path)
        assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_text() != OLD
    before = os.umask(0o027)
    try:
        put(db, tmp_path / "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_owners_stay(db: Any, tmp_path: Path) -> None:
    """Only root gives files away: for others it is their own file that stays theirs."""
    owner = (12345, 54321) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    path = tmp_path / "t.csv"
    path.write_text(OLD)
    os.chown(path, *owner)
    path.chmod(0o640)
    copied(db, path)
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner, 0o640)


def test_an_owner_that_cannot_be_kept(db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text(OLD)
    path.chmod(0o604)

    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(whole_files.os, "fchown", refuse)
    plain = os.fstat
    monkeypatch.setattr(
        whole_files.os,
        "fstat",
        lambda descriptor: os.stat_result((*plain(descriptor)[:4], 777, 777, *plain(descriptor)[6:])),
    )
    copied(db, path)
    assert path.read_text().startswith("a\n") and stat.S_IMODE(path.stat().st_mode) == 0o604


def test_the_mode_is_there_before_the_rows(tmp_path: Path) -> None:
    """Nobody can read of a private file what is written of it."""
    path = tmp_path / "t.csv"
    path.write_text(OLD)
    path.chmod(0o600)
    seen = []

    def batches() -> Iterator[pa.RecordBatch]:
        (partial,) = (name for name in os.listdir(tmp_path) if name.endswith(".partial"))
        seen.append(stat.S_IMODE((tmp_path / partial).stat().st_mode))
        yield pa.record_batch({"a": [1]})

    write(batches(), pa.schema([("a", pa.int64())]), "csv", path)
    assert seen == [0o600]


def test_errors_and_interrupts_leave_nothing(db: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(OLD)
    with pytest.raises(ExecutionError):
        db.sql(f"COPY (SELECT 1 // (a - 4) AS x, CAST('x' || a AS INTEGER) FROM t) TO '{path}'")

    def interrupted() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise KeyboardInterrupt

    for kind in ("csv", "json", "arrow", "parquet"):
        with pytest.raises(KeyboardInterrupt):
            write(interrupted(), pa.schema([("a", pa.int64())]), kind, path)
    with pytest.raises(SourceError, match="cannot write"):
        db.sql(f"COPY t TO '{tmp_path}/no/such/t.csv'")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SourceError, match="cannot write .*loop"):
        copied(db, tmp_path / "loop")
    assert path.read_text() == OLD and sorted(os.listdir(tmp_path)) == ["loop", "t.csv"]


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(db: Any, tmp_path: Path) -> None:
    (tmp_path / ".t.csv.01234567.partial").write_text("left by a process that was killed")
    (tmp_path / ".t.csv.89abcdef.partial").mkdir()
    (tmp_path / ".t.csv.89abcdef.partial" / "k=1").mkdir()
    for other in (".t.csv.partial", ".t.csv.0123456x.partial", ".u.csv.01234567.partial", "t.csv.01234567.partial"):
        (tmp_path / other).write_text("of somebody else")
    living = tmp_path / ".t.csv.00000000.partial"
    living.write_text("at work")
    with open(living) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        copied(db, tmp_path / "t.csv")
        assert living.exists()
    assert sorted(os.listdir(tmp_path)) == sorted(
        [
            ".t.csv.partial",
            ".t.csv.0123456x.partial",
            ".u.csv.01234567.partial",
            "t.csv.01234567.partial",
            ".t.csv.00000000.partial",
            "t.csv",
        ]
    )
    copied(db, tmp_path / "t.csv")
    assert not living.exists()


def test_two_writers_of_one_file(db: Any, tmp_path: Path) -> None:
    """The second begins while the first is at work; both end well, and the last one stays."""
    path = tmp_path / "t.csv"

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        copied(db, path)
        yield pa.record_batch({"a": [2]})

    write(batches(), pa.schema([("a", pa.int64())]), "csv", path)
    assert path.read_text() == "a\n1\n2\n" and os.listdir(tmp_path) == ["t.csv"]


def test_long_names_and_devices(db: Any, tmp_path: Path) -> None:
    path = tmp_path / ("x" * 251 + ".csv")
    copied(db, path)
    copied(db, path)
    assert os.listdir(tmp_path) == [path.name]
    copied(db, Path("/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
