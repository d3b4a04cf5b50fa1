"""A backend whose snapshots the test decides: the session, the threads and the display are those of any query."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.patience import PATIENCE_SECONDS
from tsql.backends import Backend, Run
from tsql.backends.backend import not_on_spark
from tsql.backends.snapshots import Snapshot

SQL = "SELECT 'a' AS name, 1::BIGINT AS n, 1.5::DOUBLE AS m"


def arrays(*values: float | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.float64())])


class Scripted(Backend):
    """Gives `count` snapshots of three rows, whose `n` is their number. Before the one with the number `held` it waits
    for `go_on`; `error` comes in its place. A `deaf` one does not see that its run was cancelled. `change` is what else
    is in each snapshot."""

    name, target, shards = "scripted", "local", None

    def __init__(
        self, count: int = 5, held: int = -1, error: Exception | None = None, deaf: bool = False, **change: Any
    ):
        self.count, self.held, self.error, self.deaf, self.change = count, held, error, deaf, change
        self.go_on, self.waits, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.given = 0
        self.threads: set[str] = set()

    def snapshots(self, plan: Any, run: Run) -> Iterator[Snapshot]:
        try:
            for number in range(self.count):
                self.threads.add(threading.current_thread().name)
                if number == self.held:
                    self.waits.set()
                    self._wait(run)
                    if self.error is not None:
                        raise self.error
                self._check(run)
                self.given += 1
                yield self.snapshot(number, plan.schema)
        finally:
            self.ended.set()

    def _check(self, run: Run) -> None:
        if not self.deaf:
            run.check()

    def _wait(self, run: Run) -> None:
        for _ in range(int(PATIENCE_SECONDS / 0.005)):
            self._check(run)
            if self.go_on.wait(0.005):
                return
        raise AssertionError("nobody has let it go on")

    def snapshot(self, number: int, schema: pa.Schema) -> Snapshot:
        columns = [["a", "b", "c"], [number] * 3, [100.0, 20.0, None]]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )
        is_last = number == self.count - 1
        width = float(self.count - 1 - number)
        bounds = {2: (arrays(100 - width, None, None), arrays(100 + width, None, None))}
        known = Snapshot([batch], 10 * (number + 1), 10 * self.count, is_last, is_last, bounds)
        return replace(known, **self.change)

    def run(self, plan: Any, run: Run) -> Iterator[pa.RecordBatch]:
        *_, last = self.snapshots(plan, run)
        yield from last.batches

    def run_all(self, plan: Any, run: Run) -> list[pa.RecordBatch]:
        return list(self.run(plan, run))

    def frame(self, plan: Any, run: Run) -> Any:
        raise not_on_spark()

    def close(self) -> None:
        pass
