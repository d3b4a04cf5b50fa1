"""Files elsewhere, by a file system of a test's own and by `file://`: kinds, patterns, errors, and secrets that stay
secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

import tsql
from tests.sources.store import CountingStore, s3_server
from tests.spark.cluster import InProcess
from tsql.backends.io import remote
from tsql.backends.io.open import from_description, open_source, portable
from tsql.backends.io.parquet import sampled
from tsql.backends.io.parquet import source as parquet
from tsql.backends.spark.backend import SparkBackend
from tsql.kernels.expr.errors import SourceError

SECRET = "AKIA-very-secret"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """A store that is a folder: `mock://bucket/..`."""
    (tmp_path / "bucket").mkdir()
    made = CountingStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    monkeypatch.setitem(remote.FILESYSTEMS, "mock", lambda url, storage: made.opened(storage))
    monkeypatch.setattr(remote, "_made", {})
    monkeypatch.setattr(remote, "_storage", {})
    made.folder = tmp_path / "bucket"
    return made


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect() as session:
        yield session


TABLE = pa.table({"a": list(range(1000)), "s": [f"text {n % 17}" for n in range(1000)]})


def test_parquet(db: Any, store: CountingStore) -> None:
    for number in range(3):
        folder = store.folder / "t" / f"k={number}"
        folder.mkdir(parents=True)
        pq.write_table(TABLE, folder / "f.parquet", row_group_size=300)
    (store.folder / "t" / "_SUCCESS").touch()
    for path in ("mock://bucket/t", "mock://bucket/t/", "mock://bucket/t/*/f.parquet", "mock://bucket/**/*.parquet"):
        found = db.sql(f"SELECT count(*), sum(a), count(DISTINCT s), max(k) FROM '{path}' WHERE a >= 900").fetchall()
        assert found == [(300, 3 * sum(range(900, 1000)), 17, 2)], path
    assert db.sql("SELECT count(*) FROM 'mock://bucket/t' WHERE k = 1").fetchall() == [(1000,)]
    text = db.sql("SELECT a FROM 'mock://bucket/t/k=0/f.parquet'").plan()
    assert len(tsql.load_plan_text(text).run(db).fetchall()) == 1000


def test_few_requests(db: Any, store: CountingStore) -> None:
    """A footer is one request, and the columns of a row group are fetched together."""
    pq.write_table(TABLE, store.folder / "f.parquet")
    source = open_source("mock://bucket/f.parquet")
    assert store.reads == 1
    (split,) = source.splits(("a", "s"), None)
    assert sum(batch.num_rows for batch in source.read(split, ("a", "s"))) == 1000
    assert store.reads <= 4


def test_very_many_files(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sizes come with their names, and the footers of a sample are read side by side."""
    monkeypatch.setattr(parquet, "ALL_FOOTERS", 3)
    monkeypatch.setattr(sampled, "SAMPLED_FILES", 4)
    monkeypatch.setattr("tsql.backends.io.open.MANY_FILES", 3)
    for number in range(20):
        folder = store.folder / "t" / f"k={number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE, folder / f"f{number:02}.parquet", row_group_size=300)
    source: Any = open_source("mock://bucket/t", "parquet")
    asked = store.asked
    source.read_in_tasks()
    assert source.statistics().rows == 20_000 and len(source.splits(("a",), None)) == 20
    assert store.asked == asked and store.reads == 4
    assert all(split.detail[2] for split in source.splits(("a",), None))
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        found = db.sql("SELECT k, count(*), sum(a) FROM 'mock://bucket/t' WHERE a >= 900 GROUP BY k ORDER BY k")
        assert found.fetchall() == [(k, 1000, 10 * sum(range(900, 1000))) for k in (0, 1)]


def test_other_kinds(db: Any, store: CountingStore) -> None:
    for name, options in (("f.csv", ""), ("f.csv.gz", ""), ("f.json", ""), ("f.arrow", "")):
        db.register("data", TABLE)
        local = store.folder / name
        db.sql("SELECT * FROM data").write(str(local)) if not name.endswith("gz") else zipped(db, local)
        path = f"mock://bucket/{name}{options}"
        assert db.sql(f"SELECT count(*), sum(a), max(s) FROM '{path}'").fetchall() == [(1000, 499500, "text 9")], name
    assert db.sql("SELECT size FROM read_blob('mock://bucket/f.json')").fetchall() == [
        ((store.folder / "f.json").stat().st_size,)
    ]


def zipped(db: Any, path: Path) -> None:
    import gzip

    db.sql("SELECT * FROM data").write(str(path.with_suffix("")))
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


def test_changes_are_seen(db: Any, store: CountingStore) -> None:
    sql = "SELECT count(*) FROM 'mock://bucket/*.parquet'"
    pq.write_table(TABLE, store.folder / "f.parquet")
    assert db.sql(sql).fetchall() == [(1000,)]
    pq.write_table(TABLE, store.folder / "g.parquet")
    assert db.sql(sql).fetchall() == [(2000,)]
    pq.write_table(TABLE.slice(0, 10), store.folder / "g.parquet")
    assert db.sql(sql).fetchall() == [(1010,)]


def test_errors(db: Any, store: CountingStore) -> None:
    (store.folder / "damaged.parquet").write_bytes(b"PAR1 nothing PAR2")
    (store.folder / "short.parquet").write_bytes(b"PAR1")
    (store.folder / "empty").mkdir()
    for path, message in (
        ("mock://bucket/none.parquet", "no such file"),
        ("mock://bucket/*.none", "no file matches"),
        ("mock://bucket/damaged.parquet", "cut off or damaged"),
        ("mock://bucket/short.parquet", "not a Parquet file"),
        ("mock://bucket/empty", "holds no data files"),
        ("mock://user:secret@bucket/f.parquet", "credentials in a URL are not taken"),
        ("http://host/f.parquet", "only local files are read"),
        ("file://elsewhere/f.parquet", "another machine"),
    ):
        with pytest.raises(SourceError, match=message) as caught:
            db.sql(f"SELECT * FROM '{path}'")
        assert "secret" not in caught.value.message
    store.fails = PermissionError("denied")
    with pytest.raises(SourceError, match="permission denied"):
        db.sql("SELECT * FROM 'mock://bucket/damaged.parquet'")
    store.fails = OSError(f"the key {SECRET} is wrong")
    remote.remember("mock://bucket/", {"secret_key": SECRET})
    with pytest.raises(SourceError, match="cannot be reached: the key ... is wrong") as caught:
        db.sql("SELECT * FROM 'mock://bucket/damaged.parquet'")
    assert SECRET not in str(caught.value)


def test_secrets_travel_unseen(db: Any, store: CountingStore) -> None:
    """Credentials reach the process that opens a description, and no text that is printed."""
    pq.write_table(TABLE, store.folder / "f.parquet")
    remote.remember("mock://bucket/x", {"access_key": "key", "secret_key": SECRET})
    relation = db.sql("SELECT sum(a) FROM read_parquet('mock://bucket/f.parquet', union_by_name => true)")
    for text in (relation.plan(), *(relation.explain(level) for level in ("logical", "physical", "pipelines"))):
        assert SECRET not in text
    source: Any = open_source("mock://bucket/f.parquet")
    assert store.given == {"access_key": "key", "secret_key": SECRET}
    assert SECRET not in json.dumps(source.describe()) and SECRET not in repr(source)
    description = json.loads(json.dumps(portable(source)))
    remote._storage.clear()
    remote._made.clear()
    store.given = None
    assert from_description(description).statistics().rows == 1000
    assert store.given == {"access_key": "key", "secret_key": SECRET}
    with pytest.raises(SourceError) as caught:
        from_description({**description, "paths": 5})
    assert SECRET not in str(caught.value)


def test_file_urls(db: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c"
    folder.mkdir()
    pq.write_table(TABLE, folder / "f.parquet")
    for path in (f"file://{tmp_path}/a%20b%2520c/f.parquet", f"file:{tmp_path}/a%20b%2520c/*.parquet"):
        assert db.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(1000,)]


def test_hadoop_settings() -> None:
    """A Spark session's settings in the words of pyarrow."""
    pytest.importorskip("pyspark")
    from tsql.backends.spark.storage import storage_of

    settings = {
        "fs.s3a.access.key": "a", "fs.s3a.secret.key": "b", "fs.s3a.bucket.mine.secret.key": "c",
        "fs.s3a.endpoint": "http://127.0.0.1:9000", "fs.azure.account.key.acc.dfs.core.windows.net": "k",
    }  # fmt: skip
    assert storage_of(settings, "s3a", "other") == {
        "access_key": "a", "secret_key": "b", "endpoint_override": "127.0.0.1:9000", "scheme": "http"
    }  # fmt: skip
    assert storage_of(settings, "s3", "mine")["secret_key"] == "c"
    assert storage_of(settings, "abfss", "box@acc.dfs.core.windows.net") == {"account_name": "acc", "account_key": "k"}
    assert storage_of(settings, "hdfs", "name") == storage_of(settings, "gs", "b") == {}


def test_s3(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in this process that speaks S3."""
    monkeypatch.setattr(remote, "_made", {})
    with s3_server() as address:
        for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", SECRET)):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        store = fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
        store.create_dir("lake")
        pq.write_table(TABLE, "lake/t/f.parquet", filesystem=store)
        assert db.sql("SELECT sum(a) FROM 's3://lake/t/*.parquet'").fetchall() == [(499500,)]
        with pytest.raises(SourceError, match="no such file"):
            db.sql("FROM 's3://lake/none.parquet'")
