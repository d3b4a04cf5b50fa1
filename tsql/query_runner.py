"""`QueryRunner`: turns prepared queries into relations that run on the backend of a session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.backend_choice import check_backend, make_backend, target_of
from tsql.backends import Backend, Run, Settings
from tsql.backends.backend import not_on_spark
from tsql.backends.datasets import Datasets, any_kept
from tsql.interrupt import Interruptible
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.types import BIGINT
from tsql.planner import PhysicalPlan, make_plan
from tsql.prepared import Prepared
from tsql.relation import Relation
from tsql.running import AtWork, Running

if TYPE_CHECKING:
    from tsql.backends.sinks import Sinks
    from tsql.catalog.streams import Streams
    from tsql.jobs import Job
    from tsql.planner.logical import nodes as logical


class QueryRunner:
    """The backend of a session (made at first use), its settings, and its open runs. `fail` is told of each query that
    fails: a transaction then allows only ROLLBACK."""

    def __init__(self, backend: Backend | str, settings: Settings, spark: Any, fail: Callable[[], None]) -> None:
        check_backend(backend)
        self.settings = settings
        self.running = Running()
        self._backend, self._spark, self._fail = backend, spark, fail
        self.start_job: Callable[..., Job] | None = None
        """Starts a query as a job of the session."""
        self.live_streams: Callable[[], Streams]
        """The streams of the catalog, for one job."""
        self.find_streams: Callable[[Callable[[], logical.Output]], bool | None] = lambda plan: None
        """Whether a query reads streams (None: no), and whether one of them does not end."""
        self.start_ms = 0.0
        """What it took to start Spark, if it was started here."""

    @property
    def backend(self) -> Backend:
        """What runs the plans."""
        if isinstance(self._backend, str):
            begun = time.perf_counter()
            self._backend = make_backend(self._backend, self._spark)
            if self.target == "spark" and (self._spark is None or isinstance(self._spark, dict)):
                self.start_ms = (time.perf_counter() - begun) * 1000
        return self._backend

    @property
    def target(self) -> str:
        """What plans are made for."""
        return target_of(self._backend)

    @property
    def shards(self) -> int | None:
        """The number of shards that the backend would choose; None leaves it to the settings."""
        return None if self.target == "local" or self.settings.shards else self.backend.shards

    @property
    def broadcast_bytes(self) -> int | None:
        """What each machine of the backend has room for; None if that is not known before its cluster starts."""
        waits = isinstance(self._backend, str) and self.settings.shards
        return None if self.target == "local" or waits else self.backend.broadcast_bytes

    def plan(self, prepared: Prepared, settings: Settings | None = None) -> PhysicalPlan:
        """The plan of a query for the backend, made at the first use."""
        return prepared.make_plan(settings or self.settings, self.target, self.shards, self.broadcast_bytes)

    def relation(self, prepared: Prepared, values: dict[str, Any], *, cached: bool = False) -> Relation:
        """The lazy result of a query, under the current settings. For a `cached` query, the time of its analysis is not
        reported again."""
        settings = replace(self.settings)

        def new_run() -> Run:
            spent = {"parse": 0.0, "plan": 0.0} if cached else dict(prepared.timings_ms)
            return Run(settings=settings, parameters=values, timings_ms=spent)

        def plan_for(run: Run) -> PhysicalPlan:
            fresh = prepared.physical is None
            run.planning = True
            try:
                plan = self.plan(prepared, settings)
            finally:
                run.planning = False
            if fresh:
                run.timings_ms["plan"] = prepared.timings_ms["plan"]
            return plan

        def frame(run: Run) -> Any:
            return self.backend.frame(self.plan(prepared, settings), run)

        return Relation(
            prepared.names,
            prepared.types,
            lambda run: self.backend.run(plan_for(run), run),
            new_run,
            describe_plan=lambda level: self.explain(prepared, values, level),
            source=prepared.source,
            relocate=lambda error: self._failed(prepared, error),
            # A DataFrame needs a plan for Spark. Without Spark, nothing is planned and no query has failed.
            frame=frame if self.target == "spark" else None,
            start_all=lambda run: self.backend.run_all(plan_for(run), run),
            running=self.running,
            snapshots=lambda run: self.backend.snapshots(plan_for(run), run),
            is_progressive=lambda: self.plan(prepared, settings).is_progressive,
            start_job=partial(self._job, prepared, values, settings),
            reads_streams=lambda: self._streams(prepared) is not None,
            is_endless=lambda: bool(self._streams(prepared)),
        )

    def _live_plan(self, prepared: Prepared, settings: Settings, streams: Streams) -> PhysicalPlan:
        """The plan of a query over its streams, and not over the files that they are now."""
        query = prepared.query
        # A cluster places the rows of a job by itself.
        return make_plan(streams.in_query(query.plan), settings, query.text, "local", None, query.hints)

    def _streams(self, prepared: Prepared) -> bool | None:
        """None: the query reads no streams. Whether one of them does not end."""
        return self.find_streams(lambda: prepared.query.plan)

    def _job(self, prepared: Prepared, values: dict[str, Any], settings: Settings, *given: Any, **more: Any) -> Job:
        """Start a query as a job: it is planned over its streams, and not over the files that they are now."""
        from tsql.jobs import Query

        assert self.start_job is not None

        def plan(streams: Streams) -> PhysicalPlan:
            return self._live_plan(prepared, settings, streams)

        return self.start_job(Query(plan, True, values, prepared.piece.relocate), *given, **more)

    def datasets(self) -> Datasets | None:
        """What the cluster keeps by name; None if nobody keeps anything, so that no cluster is started to look."""
        sinks = self.backend.sinks() if any_kept() else None
        return None if sinks is None else sinks.datasets()

    def into(
        self, prepared: Prepared, values: dict[str, Any], write: Callable[[Sinks, PhysicalPlan, Run], int]
    ) -> Relation:
        """The number of rows that the tasks of a cluster write at each run, as a relation."""
        settings = replace(self.settings)

        def start(run: Run) -> list[pa.RecordBatch]:
            sinks = self.backend.sinks()
            if sinks is None:
                raise not_on_spark()
            rows = write(sinks, self.plan(prepared, settings), run)
            return [pa.record_batch([pa.array([rows], pa.int64())], ["Count"])]

        return Relation(
            ("Count",),
            (BIGINT,),
            start,
            lambda: Run(settings=settings, parameters=values, timings_ms=dict(prepared.timings_ms)),
            describe_plan=lambda level: self.explain(prepared, values, level),
            relocate=lambda error: self._failed(prepared, error),
            running=self.running,
        )

    def local_relation(self, prepared: Prepared, values: dict[str, Any]) -> Relation:
        """A relation that is computed in this process whatever the backend: row positions have no meaning elsewhere."""
        if self.target == "local":
            return self.relation(prepared, values)
        backend, settings = make_backend("local"), replace(self.settings)
        plan = prepared.make_plan(settings, "local")
        return Relation(
            prepared.names,
            prepared.types,
            lambda run: backend.run(plan, run),
            lambda: Run(settings=settings, parameters=values),
            relocate=lambda error: self._failed(prepared, error),
            running=self.running,
        )

    def _failed(self, prepared: Prepared, error: TsqlError) -> TsqlError:
        self._fail()
        return prepared.piece.relocate(error)

    def table(self, plan: logical.Output) -> pa.Table:
        """The result of a logical plan that the analyzer asks for."""
        physical = make_plan(plan, self.settings, "", self.target, self.shards)
        run = Run(settings=replace(self.settings))
        with Interruptible(run, self.running):
            return pa.Table.from_batches(self.backend.run(physical, run), physical.schema)

    def explain(self, prepared: Prepared, values: dict[str, Any], level: str) -> str:
        """The text of one level of `explain` for a query: from its logical plan to its assembly."""
        run = Run(settings=replace(self.settings), parameters=values)
        with AtWork(run, self.running):
            if level == "logical":
                from tsql.planner.logical import nodes as logical

                return logical.show(prepared.query.plan)
            if level.startswith("candidates"):
                from tsql.planner.candidates import listing

                found = prepared.candidates(self.settings, self.target, self.shards, self.broadcast_bytes)
                return listing(found, int(level.partition(" ")[2] or 0))
            if level == "time":
                from tsql.live_explain import time_text

                return time_text(self._live_plan(prepared, self.settings, self.live_streams()), run)
            plan = self.plan(prepared)
            if level == "file":
                return plan.text()
            run.timings_ms = dict(prepared.timings_ms)
            return self.explain_plan(plan, level, run)

    def explain_plan(self, plan: PhysicalPlan, level: str, run: Run) -> str:
        """The text of one level of `explain` for a physical plan."""
        from tsql.backends.explain import explain

        return explain(plan, level, self.backend, run)

    def close_backend(self) -> None:
        """Free what the backend holds, if it was made."""
        if not isinstance(self._backend, str):
            self._backend.close()
