"""Files and folders in a store: they appear whole or not at all. A store with real folders, one of objects, and S3."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.fs as fs
import pytest

import tsql
from tests.api.test_copy_partitions import HARD
from tests.sources.store import CountingStore, s3_server
from tsql.backends.io import remote, store_writes
from tsql.kernels.expr.errors import ExecutionError, SourceError

SECRET = "very-secret-key"
ROWS = pa.table({"k": [i % 3 for i in range(300)], "v": list(range(300))})
FAILING = "SELECT k, (CASE WHEN v = 299 THEN 'x' ELSE '1' END)::INTEGER AS v FROM t"


@pytest.fixture(params=["objects", "folders"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """A store that is a folder of this machine: `mock://bucket/..`."""
    (tmp_path / "bucket").mkdir()
    made = CountingStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    monkeypatch.setitem(remote.FILESYSTEMS, "mock", lambda url, storage: made.opened(storage))
    monkeypatch.setattr(remote, "_made", {})
    monkeypatch.setattr(remote, "_storage", {})
    if request.param == "folders":
        monkeypatch.setattr(store_writes, "RENAMES", {"mock"})
    made.folder = tmp_path / "bucket"
    return made


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect() as session:
        session.register("t", ROWS)
        yield session


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def data_in(folder: Path) -> list[str]:
    return [name for name in files_in(folder) if not name.endswith("_SUCCESS")]


def values(folder: Path) -> list[int]:
    text = f"SELECT v FROM read_parquet('{folder}/**/*.parquet', hive_partitioning=true) ORDER BY v"
    return [v for (v,) in duckdb.sql(text).fetchall()]


@pytest.mark.parametrize("name", ["f.parquet", "f.csv", "f.csv.gz", "f.json", "f.arrow"])
def test_one_file(db: Any, store: CountingStore, name: str) -> None:
    url = f"mock://bucket/deep/{name}"
    for _ in range(2):
        assert db.sql(f"COPY t TO '{url}'").fetchall() == [(300,)]
        assert files_in(store.folder) == [f"deep/{name}"]
        assert db.sql(f"SELECT count(*), sum(v) FROM '{url}'").fetchall() == [(300, 44850)]
    assert db.sql("FROM t LIMIT 7").write(f"mock://bucket/w-{name}", "csv" if "csv" in name else None) == 7
    assert db.sql(f"SELECT count(*) FROM 'mock://bucket/w-{name}'").fetchall() == [(7,)]


def test_a_file_that_fails(db: Any, store: CountingStore) -> None:
    """The old file stays, or there is none."""
    db.sql("COPY t TO 'mock://bucket/old.parquet'")
    old = (store.folder / "old.parquet").read_bytes()
    for name in ("old", "new"):
        with pytest.raises(ExecutionError, match="Could not convert"):
            db.sql(f"COPY ({FAILING}) TO 'mock://bucket/{name}.parquet'")

    def fails(_: int) -> None:
        raise OSError(f"the key {SECRET} is wrong")

    store.at_move = fails
    remote.remember("mock://bucket/", {"secret_key": SECRET})
    with pytest.raises(
        SourceError, match=r"cannot write mock://bucket/old.parquet: .*the key \*\*\* is wrong"
    ) as caught:
        db.sql("COPY t TO 'mock://bucket/old.parquet'")
    assert SECRET not in str(caught.value)
    assert files_in(store.folder) == ["old.parquet"] and (store.folder / "old.parquet").read_bytes() == old


def test_partitions(db: Any, store: CountingStore) -> None:
    """What a second run does to a folder that has files."""
    copy = (
        "COPY (SELECT k, v + {plus} AS v FROM t{where}) TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k){how})"
    )
    out = store.folder / "out"
    assert db.sql(copy.format(plus=0, where="", how="")).fetchall() == [(300,)]
    assert {os.path.dirname(name) for name in data_in(out)} == {"k=0", "k=1", "k=2"} and values(out) == list(range(300))
    with pytest.raises(SourceError, match='Directory "mock://bucket/out" is not empty! Enable OVERWRITE'):
        db.sql(copy.format(plus=0, where="", how=""))
    assert values(out) == list(range(300))
    db.sql(copy.format(plus=0, where=" WHERE k = 1", how=", OVERWRITE_OR_IGNORE"))
    assert values(out) == list(range(300)), "the files of one folder are replaced"
    (out / "k=1" / "notes.txt").write_text("mine")
    db.sql(copy.format(plus=1000, where="", how=", OVERWRITE"))
    assert values(out) == list(range(1000, 1300)) and "k=1/notes.txt" not in files_in(out)
    assert [name for name in files_in(store.folder) if "partial" in name] == []
    sql = "SELECT count(*), min(v) FROM 'mock://bucket/out' WHERE k = 2"
    assert db.sql(sql).fetchall() == [(100, 1002)]


def test_success_is_last(db: Any, store: CountingStore) -> None:
    """Of a store that cannot rename a folder: a mark that all files are there."""
    db.sql("COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k))")
    is_marked = "mock" not in store_writes.RENAMES
    assert (store.folder / "out" / "_SUCCESS").exists() == is_marked
    seen = []
    store.at_move = lambda _: seen.append((store.folder / "out" / "_SUCCESS").exists())
    db.sql("COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k), OVERWRITE)")
    assert seen and not any(seen)
    assert (store.folder / "out" / "_SUCCESS").exists() == is_marked


@pytest.mark.parametrize("at", (1, 2, 3, 4))
@pytest.mark.parametrize("how", ("", ", OVERWRITE", ", OVERWRITE_OR_IGNORE"))
def test_a_commit_that_fails(db: Any, store: CountingStore, at: int, how: str) -> None:
    """Whichever move fails: the folder is as it was."""
    if how:
        db.sql("COPY (FROM t WHERE v < 90) TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k))")
    before = files_in(store.folder)
    first = store.moves

    def fails(number: int) -> None:
        if number - first == at:
            raise OSError("no more")

    store.at_move = fails
    copy = f"COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k){how})"
    if at == 4 and ("mock" not in store_writes.RENAMES or how == ", OVERWRITE_OR_IGNORE"):
        db.sql(copy)
        return
    with pytest.raises(SourceError, match="cannot write mock://bucket/out: .*no more"):
        db.sql(copy)
    assert files_in(store.folder) == before
    store.at_move = None
    db.sql(copy)
    assert values(store.folder / "out") == list(range(300))


@pytest.mark.parametrize("at", (1, 2, 3))
def test_a_commit_that_cannot_be_taken_back(db: Any, store: CountingStore, at: int) -> None:
    """The first error is told, and a folder without all of its files has no mark that says so."""
    copy = "COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k), OVERWRITE)"
    db.sql(copy)
    first = store.moves

    def fails(number: int) -> None:
        if number - first == at:
            store.fails = OSError("and no less")  # all that follows
            raise OSError("no more")

    store.at_move = fails
    with pytest.raises(SourceError, match="cannot write mock://bucket/out: .*no more"):
        db.sql(copy)
    assert not (store.folder / "out" / "_SUCCESS").exists()


def test_copies_that_stay(db: Any, store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files that cannot be removed are an error: the folder has all rows of both runs, and no mark."""
    copy = "COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k){})"
    db.sql(copy.format(""))

    def fails(path: str) -> None:
        if path.endswith(".parquet"):
            raise OSError("no more")
        plain(path)

    plain = store.delete_file
    monkeypatch.setattr(store, "delete_file", fails)
    if "mock" in store_writes.RENAMES:
        db.sql(copy.format(", OVERWRITE"))
        assert values(store.folder / "out") == list(range(300)), "the folder is renamed"
        return
    with pytest.raises(SourceError, match="cannot write mock://bucket/out: .*no more"):
        db.sql(copy.format(", OVERWRITE"))
    assert values(store.folder / "out") == sorted([*range(300), *range(300)])
    assert not (store.folder / "out" / "_SUCCESS").exists()


def staged(store: CountingStore, token: str, days: int, *places: str) -> Path:
    """The hidden folder of a run that has not ended, with files that were changed so many days ago."""
    beside = "mock" in store_writes.RENAMES
    folder = store.folder / (f".out.{token}.partial" if beside else f"out/.copy.{token}.partial")
    for place in places:
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_bytes(b"half of it")
        then = dt.datetime.now().timestamp() - days * 86400
        os.utime(folder / place, (then, then))
    return folder


def test_leftovers(db: Any, store: CountingStore) -> None:
    """Files of an unfinished run are not seen; old ones are removed by the next writer, young ones may be alive."""
    old = [staged(store, token, 30, "attempt/x.parquet") for token in ("0123abcd", "0123456789abcdef")]
    young = staged(store, "4567abcd", 1, "attempt/x.parquet")
    (store.folder / ".outer.0123abcd.partial").mkdir()
    db.sql("COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k))")
    assert not any(folder.exists() for folder in old) and young.exists()
    assert (store.folder / ".outer.0123abcd.partial").exists(), "of another target"
    assert db.sql("SELECT count(*) FROM 'mock://bucket/out'").fetchall() == [(300,)]


def test_a_folder_between_two_renames(db: Any, store: CountingStore) -> None:
    """A driver died when it had moved the old folder away: nobody else has its rows."""
    left = staged(store, "0123abcd", 30, "whole/x.parquet", "previous/y.parquet")
    db.sql("COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k))")
    if "mock" not in store_writes.RENAMES:
        assert not left.exists()
        return
    assert (left / "previous" / "y.parquet").exists()
    (left / "whole" / "x.parquet").unlink()
    (left / "whole").rmdir()
    db.sql("COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k), OVERWRITE)")
    assert not left.exists()


def test_an_old_folder_that_cannot_be_put_back(db: Any, store: CountingStore) -> None:
    copy = "COPY t TO 'mock://bucket/out' (FORMAT parquet, PARTITION_BY (k), OVERWRITE)"
    db.sql(copy)
    first = store.moves

    def fails(number: int) -> None:
        if number - first > 4:  # three files are moved, then the old folder
            raise OSError("no more")

    store.at_move = fails
    if "mock" not in store_writes.RENAMES:
        db.sql(copy)
        return
    with pytest.raises(SourceError, match="no more"):
        db.sql(copy)
    (left,) = store.folder.iterdir()
    assert values(left / "previous") == list(range(300))


def test_other_urls(db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("http://host/f.csv", "ftp://host/x/", "s4://b/f.csv"):
        for options in ("(FORMAT csv)", "(FORMAT parquet, PARTITION_BY (k))"):
            with pytest.raises(SourceError, match="only files of this machine and of a store are written"):
                db.sql(f"COPY t TO '{url}' {options}")
    with pytest.raises(SourceError, match="credentials in a URL are not taken") as caught:
        db.sql("COPY t TO 's3://me:secret@bucket/f.csv'")
    assert "secret" not in caught.value.message
    assert os.listdir(tmp_path) == []
    db.sql(f"COPY t TO 'file://{tmp_path}/a%20b.csv'")
    assert os.listdir(tmp_path) == ["a b.csv"]


def test_s3(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that speaks S3: names of every kind, files over others, and no file of a query that fails."""
    monkeypatch.setattr(remote, "_made", {})
    with s3_server() as address:
        for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", SECRET)):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        s3 = fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
        s3.create_dir("lake")

        def files() -> list[str]:
            # The server keeps files in the process: those in other folders are another test's.
            found = s3.get_file_info(fs.FileSelector("lake", recursive=True))
            there = sorted(one.path for one in found if one.type == fs.FileType.File)
            return [path for path in there if path.startswith(("lake/one/", "lake/hard/"))]

        for name in ("a b.parquet", "é+%20.parquet", "x.csv"):
            for _ in range(2):
                db.sql(f"COPY t TO 's3://lake/one/{name}'")
            assert db.sql(f"SELECT sum(v) FROM 's3://lake/one/{name}'").fetchall() == [(44850,)], name
        assert len(files()) == 3
        db.register("hard", pa.table({"k": HARD, "v": list(range(len(HARD)))}))
        copy = "COPY hard TO 's3://lake/hard/' (FORMAT parquet, PARTITION_BY (k){})"
        for how in ("", ", OVERWRITE"):
            db.sql(copy.format(how))
            found = db.sql("SELECT k, v FROM 's3://lake/hard/' ORDER BY v").fetchall()
            assert [v for _, v in found] == list(range(len(HARD)))
        before = files()
        assert not [name for name in before if "partial" in name]
        with pytest.raises(ExecutionError, match="Could not convert"):
            db.sql(f"COPY ({FAILING}) TO 's3://lake/hard' (FORMAT parquet, PARTITION_BY (k), OVERWRITE)")
        with pytest.raises(SourceError, match="cannot write s3://nowhere/x/"):
            db.sql("COPY t TO 's3://nowhere/x/' (FORMAT parquet, PARTITION_BY (k))")
        assert files() == before
