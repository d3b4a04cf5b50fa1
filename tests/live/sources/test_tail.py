"""A file that grows: whole lines, any offset, rotation while it is read and while nobody reads it, truncation."""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.live.sources.polling import check_close_wakes, check_restarts, poll_until, rows_of, steps
from tests.patience import wait_until
from tsql.backends.live.sources import line_buffer
from tsql.backends.live.sources.connectors import open_reader
from tsql.backends.live.sources.tail import TailReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, VARCHAR

SCHEMA = Schema.of(("id", BIGINT), ("name", VARCHAR))


def opened(path: Path, **options: Any) -> TailReader:
    reader = open_reader("tail", {"path": str(path), "poll_interval": "5 milliseconds", **options}, SCHEMA, "s")
    assert isinstance(reader, TailReader)
    return reader


def line(number: int, format: str = "json") -> str:
    return json.dumps({"id": number, "name": f"ü{number}"}) + "\n" if format == "json" else f"{number},ü{number}\n"


def rows(start: int, end: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"ü{number}"} for number in range(start, end)]


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize("format", ["json", "csv"])
def test_any_offset(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    monkeypatch.setattr("tsql.backends.live.sources.tail.PART_BYTES", 1000)
    header = format == "csv"
    text = "\ufeff" + ("id,name\n" if header else "") + "".join(line(number, format) for number in range(300))
    (tmp_path / "log").write_text(text, encoding="utf-8")
    for follow in (False, True):
        check_restarts(
            lambda follow=follow: opened(tmp_path / "log", format=format, header=header, follow=follow),
            rows(0, 300),
            random.Random(seed),
            all_at_once=not follow,
        )


def test_growing_file_is_rotated(tmp_path: Path) -> None:
    """A thread writes pieces of lines and rotates the file; the reader is restarted all the time."""
    seed = random.randrange(10**6)
    print("seed", seed)
    rng, other = random.Random(seed), random.Random(seed + 1)
    path = tmp_path / "log"
    path.touch()

    def produce() -> None:
        written = 0
        for turn in range(12):
            for _ in range(rng.randint(1, 10)):
                text = "".join(line(written + i) for i in range(5))
                written += 5
                for at in range(0, len(text), 37):
                    append(path, text[at : at + 37])
            if turn < 11:
                for number in range(turn, 0, -1):
                    (tmp_path / f"log.{number}").rename(tmp_path / f"log.{number + 1}")
                path.rename(tmp_path / "log.1")
        append(path, json.dumps({"id": -1, "name": "end"}) + "\n")

    first = opened(path)
    first.open({})
    _, offsets = poll_until(first, lambda rows: True)
    first.close()
    producer = threading.Thread(target=produce)
    producer.start()
    seen: list[int] = []
    while -1 not in seen:
        reader = opened(path)
        reader.open(offsets)
        for _ in range(other.randint(1, 10)):
            for arrival in reader.poll(other.randint(1, 30), 0.01) or ():
                seen += arrival.rows["id"].to_pylist()
                offsets = {arrival.partition: json.loads(json.dumps(arrival.offset))}
        reader.close()
    producer.join()
    assert seen == [*range(len(seen) - 1), -1]


def test_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = opened(path)
    reader.open({})
    (there,) = reader.poll(10, 0.0) or ()
    assert there.rows.num_rows == 0 and reader.poll(10, 0.02) == []
    path.write_text(line(0) + line(1)[:5])
    assert poll_until(reader, lambda found: len(found) >= 1)[0] == rows(0, 1)
    assert reader.poll(10, 0.02) == [] and reader.behind() == 5
    append(path, line(1)[5:])
    assert poll_until(reader, lambda found: len(found) >= 1)[0] == rows(1, 2)
    # The last line of a file that was rotated is whole.
    append(path, line(2).rstrip("\n"))
    assert reader.poll(10, 0.02) == []
    path.rename(tmp_path / "log.1")
    assert reader.poll(10, 0.02) == []
    path.write_text(line(3))
    assert poll_until(reader, lambda found: len(found) >= 2)[0] == rows(2, 4)
    reader.close()
    assert rows_of(steps(opened(tmp_path / "log.1", follow=False), lambda: 10)) == rows(0, 3)


def test_rotated_while_nobody_reads(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line(0) + line(1) + line(2))
    found = steps(opened(path, follow=False), lambda: 1)
    (_, offsets) = next(step for step in found if step[0] == rows(0, 1))
    for number, name in enumerate(("log.2", "log.1", "log")):
        if number:
            path.write_text(line(2 + number))
        os.utime(path, ns=(10**18 + number, 10**18 + number))
        if name != "log":
            path.rename(tmp_path / name)
    (tmp_path / "log.0.gz").write_bytes(b"compressed")
    assert rows_of(steps(opened(path, follow=False), lambda: 10, offsets)) == rows(1, 5)
    (tmp_path / "log.2").unlink()
    with pytest.raises(SourceError, match="log: the file that was read up to byte .* is not there any more"):
        opened(path).open(offsets)


def test_truncated(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line(0) + line(1))
    reader = opened(path)
    found = steps(reader, lambda: 10, most=2)
    path.write_text("")
    with pytest.raises(SourceError, match="log: the file was truncated or written anew"):
        assert wait_until(lambda: reader.poll(10, 0.01) is None)
    reader.close()
    for content in (line(5), line(5) + line(6) + line(7)):
        # Also if it has grown again.
        path.write_text(content)
        with pytest.raises(SourceError, match="log: the file was truncated or written anew"):
            opened(path).open(found[-1][1])
    reader = opened(path)
    steps(reader, lambda: 10, most=3)
    path.write_text("".join(map(line, range(20, 30))))
    with pytest.raises(SourceError, match="log: the file was truncated or written anew"):
        assert wait_until(lambda: reader.poll(10, 0.01) is None)


def test_latest(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line(0) + line(1)[:4])
    reader = opened(path, start="latest")
    reader.open({})
    append(path, line(1)[4:] + line(2))
    assert poll_until(reader, lambda found: len(found) >= 2)[0] == rows(1, 3)


def test_close_wakes(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(line(0))
    check_close_wakes(opened(tmp_path / "log", poll_interval="1 hour"))


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    with pytest.raises(SourceError, match="log: no such file"):
        steps(opened(path, follow=False), lambda: 10)
    path.write_text(line(0) + "\n" + "x\n" + line(1))
    with pytest.raises(SourceError, match="log: line 3: malformed JSON"):
        steps(opened(path, follow=False), lambda: 1)
    assert rows_of(steps(opened(path, follow=False, ignore_errors=True), lambda: 2)) == rows(0, 2)
    path.write_text("id,name\n1,a\nx,b\n")
    with pytest.raises(SourceError, match="log: line 3: column id: could not convert 'x' to BIGINT"):
        steps(opened(path, follow=False, format="csv", header=True), lambda: 10)
    with pytest.raises(SourceError, match="the offset of s in the checkpoint is damaged"):
        opened(path).open({"lines": {"inode": "x"}})
    monkeypatch.setattr(line_buffer, "MOST_LINE_BYTES", 1 << 10)
    path.write_text(line(0) + "x" * 2000)
    with pytest.raises(SourceError, match="log: line 2 is longer than 0 MB"):
        steps(opened(path, follow=False), lambda: 1)
