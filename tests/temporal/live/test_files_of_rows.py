"""What memory_limit has no room for goes into files, and is read there: the rows are the same, and nothing is left."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.temporal.live.test_live import plan_of
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery
from tsql.backends.settings import Settings

ROWS, BATCHES = 100_000, 6
JOIN = "SELECT a.id, b.s FROM events a JOIN events b ON a.id = b.id AND a.ts = b.ts"


def events(number: int, rows: int = ROWS) -> pa.Table:
    ids = np.arange(rows) + number * ROWS
    times = pa.array(1_700_000_000_000_000 + ids).cast(pa.timestamp("us"))
    return pa.table({"id": ids, "ts": times, "s": pa.array(np.char.add("text ", (ids % 1000).astype(str)))})


def query(session: tsql.Session, **settings: object) -> tuple[LiveQuery, list[str]]:
    session.register("events", events(0, 10))
    plan = plan_of(session, JOIN)
    scans = [step.name for step in plan.root.walk() if step.op == "scan"]
    return LiveQuery(plan, dict.fromkeys(scans, "ts"), Run(Settings(memory_limit=8 << 20, **settings))), scans  # type: ignore[arg-type]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_side_of_a_join_that_does_not_fit(tmp_path: Path) -> None:
    """Each id once on both sides: all rows meet, though those of the left side are long in files."""
    with tsql.connect(threads=2) as session:
        live, (left, right) = query(session, temp_directory=str(tmp_path))
        before = descriptors()
        for number in range(BATCHES):
            assert live.consume(left, events(number)) == []
        held = [one for _, one in live.held()]
        assert sum(map(len, held)) == ROWS * BATCHES
        assert sum(one.bytes for one in held) <= 4 << 20
        assert list(tmp_path.iterdir()) == []
        found = [batch for number in range(BATCHES) for batch in live.consume(right, events(number))]
        table = pa.Table.from_batches(found)
        assert sorted(table["id"].to_pylist()) == list(range(ROWS * BATCHES))
        assert all(s == f"text {i % 1000}" for i, s in zip(*(c.to_pylist() for c in table.columns), strict=True))
        live.close()
        del live, held, found, table
    assert descriptors() <= before + 2


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    with tsql.connect(threads=2) as session:
        live, (left, _) = query(session, temp_directory=str(place / "below"))
        with pytest.raises(tsql.TsqlError, match="cannot write to the temporary directory") as caught:
            for number in range(BATCHES):
                live.consume(left, events(number))
        assert "temp_directory" in str(caught.value.hint)
