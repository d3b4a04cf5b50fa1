"""A backend for the tests of cancelling and progress: it hands out a few batches, slowly, and waits as backends
must."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa

from tsql.backends import Backend, Run
from tsql.backends.backend import not_on_spark


class SlowBackend(Backend):
    """Emits `first` batches of the plan's schema at once, then reads on for `seconds` without emitting anything."""

    name = "slow"
    target = "local"
    shards = None

    def __init__(self, seconds: float = 600.0, first: int = 0) -> None:
        self.seconds = seconds
        self.first = first
        self.started = threading.Event()
        self.released = threading.Event()

    def run(self, plan: object, run: Run) -> Iterator[pa.RecordBatch]:
        run.total_rows = max(1, int(self.seconds / 0.02))
        self.started.set()
        try:
            for _ in range(self.first):
                yield pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in plan.schema], schema=plan.schema)
            while run.done_rows < run.total_rows:
                run.check()
                threading.Event().wait(0.02)
                run.done_rows += 1
        finally:
            self.released.set()

    def run_all(self, plan: object, run: Run) -> Iterator[pa.RecordBatch]:
        return self.run(plan, run)

    def frame(self, plan: object, run: Run) -> object:
        raise not_on_spark()

    def close(self) -> None:
        pass
