"""Live queries on the command line: on a terminal a table with rates, watermarks, late rows and state that is drawn
again and again; in a pipe the rows as they leave.

Ctrl-C or SIGTERM ends the epoch that is open and stops the job, which is the regular end of a stream that goes on: exit
code 0. A second one drops what came after the last epoch: 130."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsql.backends.io.writers import write
from tsql.backends.live.jobs.progress import JobProgress
from tsql.cli.display import Excerpt, Line, lines, print_lines, speaks_unicode
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.live_view import LiveView

if TYPE_CHECKING:
    from rich.text import Text

    from tsql.jobs import Job
    from tsql.relation import Relation

REFRESHES = 4
SHOWN_ROWS = 20
_OTHER_LINES = 12
WAIT_SECONDS = 0.1


@dataclass
class LiveOptions:
    """How a query runs as a job. sink: where `-o` says; None: to the screen or the pipe."""

    sink: Any = None
    options: dict[str, Any] = field(default_factory=dict)


def run_live(relation: Relation, kind: str, live: LiveOptions) -> int:
    """Run a query as a job until it ends or is interrupted; the rows that have left."""
    if live.sink is not None:
        return _shown(relation.start(live.sink, **live.options), None)
    if kind == "table" and sys.stdout.isatty():
        schema = Schema(tuple(Field(name, t) for name, t in zip(relation.columns, relation.sql_types, strict=True)))
        view = LiveView("result", schema, SHOWN_ROWS)
        return _shown(relation.start(view, **live.options), (relation, view))
    return _shown(relation.start(_Printer(kind), **live.options), None)


class _Printer:
    """Writes batches to stdout as they leave."""

    def __init__(self, kind: str):
        self.kind = "json" if kind == "table" else kind
        self._has_written = False

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self.kind == "csv" and self._has_written:
            import pyarrow.csv as pacsv

            pacsv.write_csv(batch, sys.stdout.buffer, pacsv.WriteOptions(include_header=False))
        else:
            write([batch], batch.schema, self.kind, sys.stdout.buffer)
        self._has_written = True
        sys.stdout.buffer.flush()


def _shown(job: Job, screen: tuple[Relation, LiveView] | None) -> int:
    """Wait for a job, and show it meanwhile."""
    for note in job.notes:
        print(f"note: {note}", file=sys.stderr)
    with _interrupts(job) as interrupted:
        if sys.stderr.isatty() or screen is not None:
            _draw(job, screen, interrupted)
        while not job.wait(WAIT_SECONDS):
            if interrupted.is_set():
                _stop(job, interrupted)
    found = job.progress()
    print_lines(sys.stderr, summary(found))
    if job._stops_now:
        raise KeyboardInterrupt  # the second one: what came after the last epoch is dropped
    return found.rows_out


@contextmanager
def _interrupts(job: Job) -> Iterator[threading.Event]:
    """A context in which Ctrl-C and SIGTERM set an event; the second one stops the job at once."""
    event = threading.Event()

    def interrupt(signum: int, frame: Any) -> None:
        if event.is_set():
            job._cancel()
        event.set()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(job: Job, interrupted: threading.Event) -> None:
    if not job.is_over and not job._stops_now:
        job.stop()


def _draw(job: Job, screen: tuple[Relation, LiveView] | None, interrupted: threading.Event) -> None:
    """Draw the job until it is over or interrupted."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, stderr=screen is None)
    ascii_only = not speaks_unicode(console.file)

    def picture() -> Text:
        from rich.text import Text

        found = summary(job.progress())
        if screen is not None:
            relation, view = screen
            rows = max(1, min(SHOWN_ROWS, console.height - _OTHER_LINES))
            found += table_of(relation, view, rows, console.width, ascii_only)
        found.append([("Ctrl-C stops", "dim")])
        shown = Text(no_wrap=True, overflow="crop")
        for number, line in enumerate(found):
            shown.append("\n" * (number > 0))
            for text, style in line:
                shown.append(text, style)
        return shown

    with Live(
        console=console,
        get_renderable=picture,
        refresh_per_second=REFRESHES,
        transient=True,
        vertical_overflow="crop",
    ):
        while not interrupted.is_set() and not job._is_over.wait(WAIT_SECONDS):
            pass
    if screen is not None:
        relation, view = screen
        print_lines(sys.stdout, table_of(relation, view, SHOWN_ROWS, console.width, ascii_only))


def table_of(relation: Relation, view: LiveView, most: int, width: int, ascii_only: bool) -> list[Line]:
    """The last rows of a result."""
    table = view.table()
    rows = table.num_rows
    shown = table.slice(max(0, rows - most)).combine_chunks()
    numbered = shown.rename_columns([str(place) for place in range(shown.num_columns)])
    return lines(relation.columns, relation.sql_types, Excerpt([], numbered.to_batches(), view.left_out + rows), width,
                 ascii_only=ascii_only)  # fmt: skip


def summary(found: JobProgress) -> list[Line]:
    """A job in a few lines: rates, streams, state."""
    first: Line = [
        (f"{found.name} {found.state}", "bold"),
        (f"  {found.seconds:,.0f} s", ""),
        (f"  in {found.rows_in:,} rows ({found.rate_in:,.0f}/s)", ""),
        (f"  out {found.rows_out:,} ({found.rate_out:,.0f}/s)", ""),
        (f"  holds {found.held_rows:,} rows, {_bytes(found.held_bytes)}", ""),
        (f"  epoch {found.committed}", ""),
    ]
    picture = [first]
    for stream in found.streams:
        line: Line = [(f"  {stream.name}", "cyan"), (f"  watermark {watermark_text(stream.watermark_us)}", "")]
        if stream.late:
            line.append((f"  {stream.late:,} late", "yellow"))
        if stream.without_time:
            line.append((f"  {stream.without_time:,} without a time", "yellow"))
        if stream.behind:
            line.append((f"  {stream.behind:,} behind", ""))
        if stream.held_back_by is not None:
            line.append((f"  held back by {stream.held_back_by}", "dim"))
        if stream.has_ended:
            line.append(("  ended", "dim"))
        picture.append(line)
    return picture


def watermark_text(time_us: int | None) -> str:
    """A watermark for people."""
    if time_us is None:
        return "none yet"
    return str(np.datetime64(time_us, "us")).replace("T", " ").removesuffix(".000000")


def _bytes(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}"
        size //= 1000
    return f"{size:,.0f} GB"
