"""Rows that the result does not show: counted by operators, told by the relation, EXPLAIN ANALYZE and the command
line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tsql.backends import Run
from tsql.backends.local import LocalBackend
from tsql.cli.command import main
from tsql.kernels.functions.datetime.presence import WITHOUT_TIME


def test_counts_add_up_over_threads() -> None:
    run = Run(notes=["a note"])
    threads = [threading.Thread(target=lambda: [run.count(WITHOUT_TIME, 1) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.count("late rows that were dropped", 1)
    run.count("rows in no window", 1)
    run.count("nothing", 0)
    assert run.counts == {WITHOUT_TIME: 2000, "late rows that were dropped": 1, "rows in no window": 1}
    assert run.told() == ["a note", "1 late rows that were dropped", "1 row in no window", "2,000 rows without a time"]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend whose plans leave three rows out."""
    plain = LocalBackend.run

    def run(self: LocalBackend, plan: Any, run: Run) -> Iterator[pa.RecordBatch]:
        run.count(WITHOUT_TIME, 3)
        return plain(self, plan, run)

    monkeypatch.setattr(LocalBackend, "run", run)


@pytest.mark.usefixtures("counting")
def test_a_relation_tells_them() -> None:
    with tsql.connect(threads=1) as db:
        relation = db.sql("SELECT 1 AS a")
        assert (relation.counts, relation.notes) == ({}, [])
        for _ in range(2):
            relation.fetchall()
            assert (relation.counts, relation.notes) == ({WITHOUT_TIME: 3}, ["3 rows without a time"])
        assert relation.explain("analyze").rstrip().endswith("3 rows without a time")


@pytest.mark.usefixtures("counting")
def test_the_command_line_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "SELECT 1 AS a", "-f", "csv"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "a\n1\n"
    assert shown.err == "note: 3 rows without a time\n"
