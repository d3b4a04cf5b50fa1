"""A process that is killed at any moment loses nothing that it had acknowledged, and leaves a database that opens."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import tsql

ROUNDS = 4
NUMBERS = 70_000


def run_until_killed(path: Path, start: int, seconds: float) -> list[int]:
    """The numbers that the writer has acknowledged before it was killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "writer.py"), str(path), str(start)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    first = process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()
    process.wait()
    lines = (first + rest).decode().split("\n")
    return [int(line) for line in lines[:-1]]  # the last line may be cut short


def test_killed_writers(tmp_path: Path) -> None:
    path = tmp_path / "db"
    chance = random.Random(20240229)
    with tsql.connect(path) as db:
        db.register("source", {"id": list(range(NUMBERS))})
        db.execute("CREATE TABLE numbers AS SELECT id FROM source")
    last, acknowledged = 0, []
    for _ in range(ROUNDS):
        told = run_until_killed(path, last, chance.random() * 0.6)
        acknowledged += told
        last = max([last, *told]) + 1
        with tsql.connect(path) as db:
            small = {row[0] for row in db.sql("SELECT id FROM t WHERE id < 1000000").fetchall()}
            sums = dict(db.sql("SELECT id, total FROM sums").fetchall())
            blocks = dict(
                db.sql("SELECT id // 1000000 AS n, count(*) FROM t WHERE id >= 1000000 GROUP BY n").fetchall()
            )
        for number in acknowledged:
            if number % 7 == 3:
                assert blocks[number] == NUMBERS
            elif number % 7 != 5:
                assert number in small and sums[number] == number * 2
        # What was not acknowledged is there as a whole or not at all: a transaction changes both tables.
        assert small == set(sums)
        assert set(blocks.values()) <= {NUMBERS}
        last = max([last, *small, *blocks])
    assert len(acknowledged) > ROUNDS
