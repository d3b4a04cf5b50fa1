"""One run of a panel: a thread that takes the snapshots of a query, and what the page may do to it.

In: the text of a script, or a plan file. Out: the messages `started`, `rows` and `snapshot`, `flow`, `done` or `error`,
posted to the outbox of the connection. Memory: the newest snapshot, as an Arrow table. `stop` ends the run within 100
ms; a run that pauses computes nothing, since a query computes while its next snapshot is waited for."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import field
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local.run.host import machine_limit
from tsql.backends.local.run.spill import can_spill
from tsql.kernels.expr.errors import OutOfMemoryError, TsqlError
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.loaded import LoadedPlan
from tsql.planner.physical.estimate import size
from tsql.planner.progressive.reasons import FINAL_ONLY
from tsql.prepared import PlanCache
from tsql.relation import Relation
from tsql.running import AtWork
from tsql.session import Session
from tsql.snapshots import Snapshot, Snapshots
from tsql.studio.filters import Filter
from tsql.studio.frames import Result
from tsql.studio.history import History
from tsql.studio.names import tables
from tsql.studio.places import error_fields, plain_error
from tsql.studio.plans import Flow
from tsql.studio.statements import Script, Shown

log = logging.getLogger("tsql.studio")

FIRST_ROWS = 1_000
"""The rows that come with each snapshot."""

RESULT_SHARE = 0.5
"""A result may take this part of the memory that a query may use."""

LIMITED = f"{FINAL_ONLY}: the session has a memory limit"

Post = Callable[[dict[str, Any], bytes | None, object], None]
"""Sends a message, behind a frame if there is one; messages of one key replace each other."""


@dataclass(frozen=True)
class Served:
    """What all connections of a studio share."""

    session: Session
    read_only: bool
    history: History
    plans: PlanCache = field(default_factory=PlanCache)


class Request:
    """What a run is asked to do: a script with the filters of the page, or a plan file."""

    def __init__(
        self, sql: str | None, plan: str | None = None, filters: Sequence[Filter] = (), progressive: bool = False
    ):
        self.sql, self.plan, self.filters, self.progressive = sql, plan, filters, progressive

    @property
    def text(self) -> str:
        return self.sql if self.sql is not None else self.plan or ""


class PanelRun:
    """A run that has begun."""

    def __init__(self, id: int, request: Request, served: Served, post: Post):
        self.id, self.request, self.session = id, request, served.session
        self.served, self._post = served, post
        self.result: Result | None = None
        self.is_over = self.is_resting = False
        """It has ended; it waits for `resume`."""
        self._handle = Run()
        """What the thread works for; all that it runs ends with it."""
        self._changed = threading.Condition()
        self._is_paused = self._is_finishing = self._is_stopped = False
        self._paused_seconds = 0.0
        self._relation: Relation | None = None
        self._has_snapshots = False
        self._flow: Flow | None = None
        self._flow_told: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._main, name=f"tsql-studio-run-{id}", daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._handle.on_cancel(self._wake)
        self._thread.start()

    def stop(self) -> None:
        """End the run; its last snapshot stands."""
        with self._changed:
            self._is_stopped = True
        self._handle.cancel("the query was stopped")

    def finish(self) -> None:
        """Show nothing more before the exact result."""
        with self._changed:
            self._is_finishing, self._is_paused = True, False
            self._changed.notify_all()

    def pause(self) -> None:
        """Compute no further snapshot until `resume`."""
        with self._changed:
            self._is_paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, but not for a library call that does not return."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def tell_flow(self) -> None:
        """Post how far the run is, if it has gone on since the last time."""
        relation, flow = self._relation, self._flow
        if self.is_over or relation is None or flow is None or self._has_snapshots:
            return
        run = relation.last_run
        if run is not None:
            self._post_flow(flow.rows(run), run.progress)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _main(self) -> None:
        begun, at = time.perf_counter(), dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        version = self.session.catalog.version
        text, failed = self.request.text, None
        told: dict[str, Any] = {}
        try:
            with AtWork(self._handle, self.session._running):
                told = self._run()
        except TsqlError as error:
            if not self._is_stopped:
                failed = error_fields(error, text)
        except BaseException as error:  # a thread has no caller: the page is told
            log.exception("a query of the studio failed")
            failed = plain_error(f"{type(error).__name__}: {error}")
        ms = (time.perf_counter() - begun - self._paused_seconds) * 1000
        rows = None if self.result is None else self.result.table.num_rows
        self.is_over = True
        if self.request.sql is not None and not self.request.filters:  # a brush asks again and again
            self.served.history.add(text, at, ms, rows, None if failed is None else failed["message"])
        changed = {} if self.session.catalog.version == version else {"tables": self._tables()}
        if failed is not None:
            self._post({"type": "error", **failed, **changed}, None, None)
        else:
            done = {
                "type": "done",
                "ms": round(ms, 3),
                "rows": rows or 0,
                "is_final": bool(told.get("is_final")) and not self._is_stopped,
                "stopped": self._is_stopped,
                "message": told.get("message"),
                "notes": told.get("notes", []),
            }
            self._post(done | changed, None, None)
        self._relation = None

    def _tables(self) -> list[dict[str, Any]]:
        try:
            return tables(self.session)
        except TsqlError:
            return []

    def _run(self) -> dict[str, Any]:
        """Run all statements; what `done` says of them."""
        if self.request.sql is None:
            plan = LoadedPlan(self.request.plan or "")
            bound = plan.bind(self.session)
            shown = Shown(plan.of(bound, self.session), bound)
            return self._show(shown)
        script = Script(self.session, self.request.sql, self.served.read_only, self.served.plans)
        told: dict[str, Any] = {}
        for number, statement in enumerate(script.statements):
            self._handle.check()
            if number != script.shown:
                _drain(script.relation(statement))
            elif statement.is_query:
                told = self._show(script.query(statement, self.request.filters, self.request.progressive))
            else:
                told = self._show(Shown(script.relation(statement)))
        return told

    def _show(self, shown: Shown) -> dict[str, Any]:
        """Run one relation, and send its snapshots."""
        relation = self._relation = shown.relation
        has_rows, is_limited = relation.message is None, can_spill(self.session.settings)
        self._has_snapshots = relation.is_progressive and not is_limited
        names = relation.columns if has_rows else []
        self._post({
            "type": "started",
            "columns": [{"name": n, "type": t} for n, t in zip(names, relation.types, strict=False)],
            "is_progressive": self._has_snapshots,
            "why": shown.why or (LIMITED if relation.is_progressive and is_limited else None),
        }, None, None)  # fmt: skip
        if shown.plan is not None:
            self._flow = Flow(shown.plan, self.session.settings)
        is_final = True
        if not has_rows:
            _drain(relation)
        elif self._has_snapshots:
            is_final = self._show_snapshots(relation)
        else:
            self._show_all(relation)
        return {"is_final": is_final, "message": relation.message, "notes": [*shown.notes, *relation.notes]}

    def _show_snapshots(self, relation: Relation) -> bool:
        number, is_final, left_out = 0, False, None
        with closing(_stopping(relation.snapshots())) as snapshots:
            for number, snap in enumerate(snapshots, 1):
                is_final = snap.is_final
                if is_final or not self._is_finishing:
                    self._take(number, snap, relation.sql_types)
                    left_out = None
                else:
                    left_out = snap
                if not is_final:
                    self._rest()
        if left_out is not None:  # it was to finish, and the query itself stopped before
            self._take(number, left_out, relation.sql_types)
        return is_final

    def _show_all(self, relation: Relation) -> None:
        begun, bytes, most = time.perf_counter(), 0, most_bytes()
        batches = []
        with closing(relation.batches()) as found:
            for batch in found:
                batches.append(batch)
                bytes += batch.nbytes
                if bytes > most:
                    raise OutOfMemoryError(
                        f"the result has more than {size(most)}, and the studio keeps all of it in memory",
                        hint="add a LIMIT, or write it to a file with COPY .. TO",
                    )
                self._rest()
        table = pa.Table.from_batches(batches, schema=relation.schema)
        run = relation.last_run
        elapsed = time.perf_counter() - begun
        self._take(1, Snapshot(table, 1.0, True, 0 if run is None else run.done_rows, elapsed), relation.sql_types)

    def _take(self, number: int, snap: Snapshot, types: tuple[Type, ...]) -> None:
        """Keep a snapshot, and send it with its first rows."""
        bounds = {place: (one.lower, one.upper) for place, one in snap.bounds_at.items()}
        self.result = result = Result(number, snap.table, types, bounds, snap.row_status)
        message = {
            "type": "snapshot",
            "number": number,
            "progress": snap.progress,
            "rows_read": snap.rows_read,
            "elapsed": max(0.0, snap.elapsed - self._paused_seconds),
            "is_final": snap.is_final,
            "rows": snap.table.num_rows,
            "bounds": list(dict.fromkeys(snap.table.column_names[place] for place in bounds)),
        }
        self._post(message, result.frame(self.id, 0, FIRST_ROWS), ("snapshot", self.id))
        flow, relation = self._flow, self._relation
        if flow is not None and relation is not None and relation.last_run is not None:
            rows = {**flow.rows(relation.last_run), **flow.of_snapshot(snap.rows_read, snap.table.num_rows)}
            self._post_flow(rows, snap.progress)

    def _post_flow(self, steps: dict[str, int], progress: float | None) -> None:
        told = {"type": "flow", "steps": steps, "progress": progress}
        if told != self._flow_told:
            self._flow_told = told
            self._post(told, None, ("flow", self.id))

    def _rest(self) -> None:
        """Wait while the run is paused; raise if it was stopped."""
        with self._changed:
            if self._is_paused and not self._handle.stopped:
                begun = time.perf_counter()
                self.is_resting = True
                self._changed.wait_for(lambda: not self._is_paused or self._handle.stopped)
                self.is_resting = False
                self._paused_seconds += time.perf_counter() - begun
        self._handle.check()


def most_bytes() -> float:
    """How large a result may be."""
    return RESULT_SHARE * machine_limit()


def _drain(relation: Relation) -> None:
    for _ in relation.batches():
        pass


def _stopping(snapshots: Snapshots) -> Generator[Snapshot, None, None]:
    """The snapshots of a run that ends with this iterator."""
    with snapshots:
        yield from snapshots
