"""`Backend`: everything a session needs from the component that runs its plans.

A backend is made at the first query of its session and closed with the session. Cancellation and progress belong to the
`Run` that is passed to each call, not to the backend, so both also work before a plan exists and after its rows are
computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from tsql.backends.names import OuterNames
from tsql.backends.run import Run
from tsql.backends.snapshots import Snapshot
from tsql.kernels.expr.errors import CatalogError

if TYPE_CHECKING:
    from tsql.backends.sinks import Sinks
    from tsql.planner.physical.step import PhysicalPlan


@runtime_checkable
class Backend(Protocol):
    """Runs physical plans. A backend is a class that inherits from this one and has all of its methods.

    Threads: any number of them may call any method at the same time, with the same plan too.

    Errors: a query that fails raises a TsqlError, whose position, if it has one, is in the text of the query. What a
    backend cannot do raises a CatalogError with a hint; no method is left out.

    Cancelling: `Run.cancel` may be called by any thread at any time. The call that waits for the run, or the iterator
    that it has returned, then raises CancelledError within 100 ms. A backend asks `run.check()` between its steps, and
    `run.on_cancel` for a call that ends what waits elsewhere.

    Progress: a backend sets `run.total_rows` once it is known, and keeps `run.done_rows`; `Run.progress` is their
    quotient. It adds "compile" and "run" to `run.timings_ms`, and tells users what they should hear by `run.note` and
    `run.count`.
    """

    name: str
    """Its name in `tsql.connect(backend=..)`."""

    target: str
    """The target that its plans are made for, as in the planner and in plan files: "local" or "spark"."""

    @property
    @abstractmethod
    def shards(self) -> int | None:
        """The default number of shards of a plan; None for the number of threads."""
        ...

    @property
    def broadcast_bytes(self) -> int | None:
        """The bytes of a join's side that each machine has room for; None if that is not known."""
        return None

    @abstractmethod
    def run(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """Batches of the plan's output schema, in the order of the result, as they are computed.

        The iterator is its caller's, for one thread at a time. If it is closed or dropped before its end, the
        run ends and frees what it holds. Batches own their memory: they outlive the iterator and the backend."""
        ...

    @abstractmethod
    def run_all(self, plan: PhysicalPlan, run: Run) -> Iterable[pa.RecordBatch]:
        """The same batches, for a caller that wants all of them: a list if all are computed when this returns."""
        ...

    def snapshots(self, plan: PhysicalPlan, run: Run) -> Iterator[Snapshot]:
        """What is known of the result while it is computed; the last snapshot is exact, unless the query asks to stop
        before. A backend that shows no progress gives that one alone."""
        batches = list(self.run_all(plan, run))
        yield Snapshot(batches, run.total_rows or 0, run.total_rows, True, True)

    @abstractmethod
    def frame(self, plan: PhysicalPlan, run: Run) -> Any:
        """The result as a lazy Spark DataFrame, which runs the plan at each action, even after `run` is over. Other
        backends raise `not_on_spark`."""
        ...

    def sinks(self) -> Sinks | None:
        """What writes results from the tasks of a cluster; None if there is no cluster."""
        return None

    def outer_names(self) -> OuterNames | None:
        """Tables that the backend knows by name, which queries find behind those of their session."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free threads, kernels and connections. The session has cancelled its runs before. What the backend was given
        (a SparkSession of the user) stays open. A second call does nothing."""
        ...


def not_on_spark() -> CatalogError:
    """The error if a Spark DataFrame is requested from another backend."""
    return CatalogError(
        "this relation is not of a session on Spark",
        hint='connect with tsql.connect(backend="spark") or tsql.connect(spark=session)',
    )
