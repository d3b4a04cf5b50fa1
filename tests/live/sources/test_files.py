"""Files that are there and files that come: every row once and in order, from any offset, and what can go wrong."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from tests.live.sources.polling import check_close_wakes, check_restarts, poll_until, rows_of, steps
from tests.patience import wait_until
from tests.sources.store import CountingStore
from tsql.backends.io import remote
from tsql.backends.live.sources.connectors import open_reader
from tsql.backends.live.sources.done_files import BLOCK_FILES, DoneFiles, name_of, state_of
from tsql.backends.live.sources.files import FilesReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, DECIMAL, DOUBLE, VARCHAR

SCHEMA = Schema.of(("id", BIGINT), ("name", VARCHAR), ("price", DOUBLE))
KINDS = ("parquet", "csv", "json", "arrow")


def write(path: Path, kind: str, rows: list[dict[str, Any]], changed: int | None = None) -> None:
    """A file of rows, in parts, that appears under its name when it is whole."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow())
    staged = path.with_name(f"{path.name}.tmp")
    if kind == "parquet":
        pq.write_table(table, staged, row_group_size=7)
    elif kind == "csv":
        pa.csv.write_csv(table, staged)
    elif kind == "json":
        staged.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with pa.ipc.new_file(staged, table.schema) as writer:
            writer.write_table(table, 5)
    if changed is not None:
        os.utime(staged, ns=(changed, changed))
    staged.rename(path)


def rows_from(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n{i % 7}", "price": i / 4} for i in range(start, start + count)]


def opened(kind: str, path: Any, schema: Schema | None = SCHEMA, **options: Any) -> FilesReader:
    settle = {"settle": "0 seconds"} if kind in ("csv", "json") else {}
    chosen: Mapping[str, Any] = {"path": str(path), "poll_interval": "10 milliseconds", **settle, **options}
    reader = open_reader(kind, chosen, schema, "s")
    assert isinstance(reader, FilesReader)
    return reader


@pytest.mark.parametrize("kind", KINDS)
def test_any_offset(tmp_path: Path, kind: str) -> None:
    """Files in the order of their times, in batches of any size."""
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    print("seed", seed)
    expected: list[dict[str, Any]] = []
    names = rng.sample(range(100), 8)
    for number, name in enumerate(names):
        rows = rows_from(len(expected), rng.choice([1, 6, 30, 61]))
        write(tmp_path / f"f{name}.{kind}", kind, rows, 10**18 + number)
        expected += rows
    check_restarts(lambda: opened(kind, tmp_path), expected, rng)
    check_restarts(lambda: opened(kind, f"{tmp_path}/*.{kind}", follow=True), expected, rng, all_at_once=False)
    assert rows_of(steps(opened(kind, tmp_path, None), lambda: 1000)) == expected


def test_declared_columns_are_conformed(tmp_path: Path) -> None:
    """Another order, another type, a text with the same words in many rows, a decimal that is held as an integer."""
    table = pa.table(
        {"a": pa.array([1, 2], pa.int32()), "w": ["x", "x"], "d": pa.array([1.5, None]).cast(pa.decimal128(5, 2))}
    )
    pq.write_table(table, tmp_path / "f.parquet")
    schema = Schema.of(("d", DECIMAL(10, 3)), ("w", VARCHAR), ("a", BIGINT))
    found = rows_of(steps(opened("parquet", tmp_path, schema), lambda: 10))
    assert [(str(row["d"]), row["w"], row["a"]) for row in found] == [("1.500", "x", 1), ("None", "x", 2)]


def test_partitions_of_folders(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        write(tmp_path / f"day={day}" / "f.parquet", "parquet", rows_from(day, 1), 10**18 + day)
    schema = Schema.of(*((field.name, field.type) for field in SCHEMA), ("day", BIGINT))
    assert [row["day"] for row in rows_of(steps(opened("parquet", tmp_path, schema), lambda: 10))] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_growing_folder(tmp_path: Path, kind: str) -> None:
    """Files that a thread writes are all read once, whatever the times that they have, across restarts."""
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    print("seed", seed)
    written: list[int] = []

    def produce() -> None:
        for number in range(40):
            rows = rows_from(number * 10, 10)
            write(tmp_path / f"f{number}.{kind}", kind, rows, 10**18 + rng.randrange(1000))
            written.append(number)

    producer = threading.Thread(target=produce)
    producer.start()
    seen: list[int] = []
    offsets: dict[str, Any] = {}
    while len(seen) < 400:
        reader = opened(kind, tmp_path, follow=True)
        reader.open(offsets)
        wanted = min(400, len(seen) + rng.randint(1, 120))
        rows: list[int] = []

        def polled(reader: FilesReader = reader, rows: list[int] = rows, wanted: int = wanted - len(seen)) -> bool:
            for arrival in reader.poll(rng.randint(1, 30), 0.01) or ():
                rows.extend(arrival.rows["id"].to_pylist())
                offsets[arrival.partition] = json.loads(json.dumps(arrival.offset))
            return len(rows) >= wanted

        assert wait_until(polled)
        seen += rows
        reader.close()
    producer.join()
    assert sorted(seen) == list(range(400))


def test_close_wakes(tmp_path: Path) -> None:
    write(tmp_path / "f.parquet", "parquet", rows_from(0, 3))
    check_close_wakes(opened("parquet", tmp_path, follow=True, poll_interval="1 hour"))


def test_unfinished_names_are_left_out(tmp_path: Path) -> None:
    for name in (".f.parquet", "_f.parquet", "f.parquet.tmp", "f.parquet.partial", "g.staged", "h.inprogress"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "_delta").mkdir()
    (tmp_path / "_delta" / "g.parquet").write_bytes(b"half")
    write(tmp_path / "f.parquet", "parquet", rows_from(0, 3))
    for pattern in (tmp_path, tmp_path / "*"):
        assert rows_of(steps(opened("parquet", pattern), lambda: 10)) == rows_from(0, 3)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_file_without_its_end_is_tried_again(tmp_path: Path, kind: str) -> None:
    write(tmp_path / f"whole.{kind}", kind, rows_from(0, 60))
    content = (tmp_path / f"whole.{kind}").read_bytes()
    path = tmp_path / f"half.{kind}"
    path.write_bytes(content[: len(content) // 2])
    reader = opened(kind, path, follow=True)
    reader.open({})
    assert wait_until(lambda: reader.poll(100, 0.01) == [] and len(reader.notices.texts) > 0)
    assert "is not whole yet" in reader.notices.texts[0]
    path.write_bytes(content)
    rows, _ = poll_until(reader, lambda rows: len(rows) >= 60)
    assert rows == rows_from(0, 60)
    reader.close()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match=f"half.{kind}"):
        steps(opened(kind, path), lambda: 10)


def test_text_file_is_left_alone_until_it_has_settled(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write(path, "json", rows_from(0, 3))
    reader = opened("json", path, follow=True, settle="1 hour")
    reader.open({})
    for _ in range(5):
        assert sum(arrival.rows.num_rows for arrival in reader.poll(10, 0.02) or ()) == 0
    os.utime(path, ns=(10**18, 10**18))
    assert poll_until(reader, lambda rows: len(rows) == 3)[0] == rows_from(0, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_file_that_changes(tmp_path: Path, kind: str) -> None:
    """After it was read, at the next look; after a restart; and while it is read."""
    path = tmp_path / f"f.{kind}"
    write(path, kind, rows_from(0, 40), 10**18)
    reader = opened(kind, path, follow=True)
    found = steps(reader, lambda: 10, most=40)
    write(path, kind, rows_from(0, 41), 10**18 + 1)
    with pytest.raises(SourceError, match=f"f.{kind}: the file has changed after it was read"):
        assert wait_until(lambda: reader.poll(10, 0.01) is None)
    reader.close()
    for _, offsets in found:
        if offsets["files"] == {"done": [], "file": None}:
            continue  # nothing of it was read
        with pytest.raises(SourceError, match=f"f.{kind}: the file has changed"):
            steps(opened(kind, path), lambda: 10, offsets)
    reader = opened(kind, path)
    assert rows_of(steps(reader, lambda: 10, most=10)) == rows_from(0, 10)
    write(path, kind, rows_from(0, 10), 10**18 + 2)
    with pytest.raises(SourceError, match=f"f.{kind}: the file has changed"):
        while reader.poll(10, 0.01) is not None:
            pass


def test_file_that_disappears(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"f{number}.csv", "csv", rows_from(number * 10, 10), 10**18 + number)
    reader = opened("csv", tmp_path)
    first = steps(reader, lambda: 4, most=4)
    (tmp_path / "f1.csv").unlink()
    rest = []
    while (arrivals := reader.poll(4, 0.01)) is not None:
        rest += [row for arrival in arrivals for row in arrival.rows.to_pylist()]
    assert rows_of(first) + rest == rows_from(0, 10) + rows_from(20, 10)
    assert "f1.csv: the file disappeared before it was read" in reader.notices.texts[0]
    (tmp_path / "f0.csv").unlink()
    with pytest.raises(SourceError, match=r"f0.csv: the file has disappeared after a part of it was read"):
        opened("csv", tmp_path).open(first[-1][1])


def test_files_that_were_read_may_be_removed(tmp_path: Path) -> None:
    """They are forgotten; a new one of that name is read."""
    write(tmp_path / "f.parquet", "parquet", rows_from(0, 3))
    reader = opened("parquet", tmp_path, follow=True)
    reader.open({})
    poll_until(reader, lambda rows: len(rows) == 3)
    (tmp_path / "f.parquet").unlink()
    assert wait_until(lambda: reader.poll(10, 0.01) == [] and len(reader._done) == 0)
    write(tmp_path / "f.parquet", "parquet", rows_from(5, 4))
    assert poll_until(reader, lambda rows: len(rows) == 4)[0] == rows_from(5, 4)
    reader.close()


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("parquet", b"no parquet at all", "f.parquet: "),
        ("arrow", b"no arrow at all", "f.arrow: "),
        ("csv", b"id,name,price\n1,a,1\n2,b,x\n", "f.csv: line 3: column price: could not convert 'x' to DOUBLE"),
        ("json", b'{"id": 1}\n{"id": \n', "f.json: line 2: malformed JSON"),
        ("json", b'{"id": 1}\n{"id": "x"}\n', "f.json: line 2: column id: could not convert 'x' to BIGINT"),
    ],
)
def test_malformed_files(tmp_path: Path, kind: str, content: bytes, message: str) -> None:
    (tmp_path / f"f.{kind}").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        steps(opened(kind, tmp_path), lambda: 10)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file matches"):
        steps(opened("parquet", tmp_path / "*.parquet"), lambda: 10)
    with pytest.raises(SourceError, match="the columns of s are not known"):
        opened("parquet", tmp_path, None, follow=True)
    reader = opened("parquet", tmp_path / "not" / "yet", follow=True)
    reader.open({})
    (there,) = reader.poll(10, 0.0) or ()
    assert (there.partition, there.rows.num_rows) == ("files", 0)
    (tmp_path / "not" / "yet").mkdir(parents=True)
    write(tmp_path / "not" / "yet" / "f.parquet", "parquet", rows_from(0, 3))
    assert poll_until(reader, lambda rows: len(rows) == 3)[0] == rows_from(0, 3)
    reader.close()


@pytest.mark.parametrize("offset", [1, {}, {"done": 1}, {"done": ["x"]}, {"done": ["AAAA"]}, {"done": [], "file": {}}])
def test_damaged_offsets(tmp_path: Path, offset: Any) -> None:
    with pytest.raises(SourceError, match="in the checkpoint is damaged"):
        opened("parquet", tmp_path).open({"files": offset})


def test_many_files_are_compact() -> None:
    """Eleven bytes a file; blocks that are full are shared by all offsets."""
    done = DoneFiles()
    for number in range(100_000):
        done.add(f"/in/{number}", state_of(number, 1))
    blocks = done.to_json()
    assert sum(map(len, blocks)) < 11 * 100_000
    assert all(one is other for one, other in zip(blocks[:-1], done.to_json()[:-1]))
    again = DoneFiles.from_json(json.loads(json.dumps(blocks)))
    assert len(again) == 100_000 and again.state(name_of("/in/77")) == state_of(77, 1)
    assert again.state(name_of("/in/x")) is None
    again.keep(name_of(f"/in/{number}") for number in range(BLOCK_FILES + 1))
    assert len(DoneFiles.from_json(again.to_json())) == len(again) == BLOCK_FILES + 1


def test_files_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of a store, found and read in the order of their times; one that was written anew is an error."""
    store = CountingStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    monkeypatch.setitem(remote.FILESYSTEMS, "mock", lambda url, storage: store.opened(storage))
    monkeypatch.setattr(remote, "_made", {})
    folder = tmp_path / "lake" / "in"
    folder.mkdir(parents=True)
    expected: list[dict[str, Any]] = []
    for number, name in enumerate("bca"):
        rows = rows_from(len(expected), 30)
        write(folder / f"{name}.parquet", "parquet", rows, 10**18 + number * 10**9)
        expected += rows
    (folder / "_half.parquet").write_bytes(b"half")
    check_restarts(lambda: opened("parquet", "mock://lake/in"), expected, random.Random(1), restarts=4)
    reader = opened("parquet", "mock://lake/in/*.parquet", follow=True)
    reader.open({})
    assert poll_until(reader, lambda rows: len(rows) >= 90)[0] == expected
    write(folder / "d.parquet", "parquet", rows_from(90, 5))
    assert poll_until(reader, lambda rows: len(rows) >= 5)[0] == rows_from(90, 5)
    write(folder / "a.parquet", "parquet", rows_from(0, 90))
    with pytest.raises(SourceError, match="mock://lake/in/a.parquet: the file has changed"):
        assert wait_until(lambda: reader.poll(10, 0.01) is None)
    reader.close()
