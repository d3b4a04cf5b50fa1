"""Jobs in processes of their own, killed at random times, while a reader looks on all the time.

The reader never sees a part of an epoch, nor a row twice; a reader that tails a file of lines sees each line once."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.sinks.jobs import CheckpointFile, Row, expected, ordered, rows_of
from tests.live.sinks.targets import TARGETS, Ndjson, Target
from tests.live.sinks.worker import Worker

KILLS = 30
KINDS = [name for name, made in TARGETS.items() if made.is_shared]


class Reader:
    """Looks until it is stopped; the first thing that is wrong ends it."""

    def __init__(self, look: Callable[[], None]):
        self.looks = 0
        self._look = look
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._look()
                self.looks += 1
                self._stopped.wait(0.005)
        except BaseException as error:  # raised again by `stop`
            self._error = error

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def check_epochs(target: Target) -> None:
    """All epochs up to some one, whole."""
    found = Counter(row[0] for row in target.rows())
    last = max(found, default=0)
    assert found == Counter({epoch: len(rows_of(epoch)) for epoch in range(1, last + 1) if rows_of(epoch)})


class Tail:
    """Reads a file of lines as it grows, never a byte twice."""

    def __init__(self, path: Path):
        self._path, self._position, self._half = path, 0, b""
        self.rows: list[Row] = []

    def look(self) -> None:
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            assert size >= self._position, "the file became shorter"
            file.seek(self._position)
            text = file.read()
        self._position += len(text)
        *lines, self._half = (self._half + text).split(b"\n")
        self.rows += [Ndjson.row(line.decode()) for line in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_kills(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    made = random.Random(seed)
    url = request.getfixturevalue("postgres_server").url() if kind == "postgres" else ""
    # Two connections take longer than to open a file.
    slower = 2 if kind == "postgres" else 1
    target: Target = TARGETS[kind](tmp_path, url)
    tail = Tail(tmp_path / "out.ndjson")
    about = {"kind": kind, "folder": str(tmp_path), "url": url, "epochs": 1 << 30}
    with Worker() as worker, Reader(tail.look if kind == "ndjson" else lambda: check_epochs(target)) as reader:
        for _ in range(KILLS):
            process = worker.start(about | {"is_ahead": made.random() < 0.5})
            time.sleep(made.choice((0.02, 0.1, 0.2, 0.3)) * made.random() * slower + 0.01)
            assert worker.kill(process) == -signal.SIGKILL
        epochs = CheckpointFile(tmp_path / "checkpoint").get()[0] + 3
        worker.start(about | {"epochs": epochs, "is_ahead": False})
        assert worker.ended() == 0
    assert epochs > 3 and reader.looks > 0
    if kind == "ndjson":
        tail.look()
        assert tail.rows == expected(epochs)
    assert ordered(target.rows()) == expected(epochs)
    print(json.dumps({"epochs": epochs, "looks": reader.looks}))
