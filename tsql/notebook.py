"""Progressive queries in a notebook: snapshots that take each other's place in the output of a cell.

With `anywidget` it is the chart of the studio, which has buttons; else a table with error bars. `Snapshots.display` and
a relation at the end of a cell come here. IPython and anywidget are imported by nothing else."""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tsql.backends.io.value_text import texts
from tsql.kernels.expr.errors import TsqlError
from tsql.snapshot_html import html_of, waiting_html

if TYPE_CHECKING:
    from tsql.snapshots import Snapshot, Snapshots

WIDGET = Path(__file__).resolve().parent / "studio" / "page" / "widget.js"
"""The page's side of the chart, as it is built with the studio."""
EVERY_SECONDS = 0.1
"""Snapshots that come sooner after the last one are not drawn, unless they are the last."""
MOST_ROWS = 1000
"""The page is sent so many rows of a snapshot."""


def shell() -> Any:
    """IPython's shell; None in other programs."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def shows_in_place() -> bool:
    """Whether this is a notebook: a shell whose output can be replaced, which a terminal's is not."""
    terminal = sys.modules.get("IPython.terminal.interactiveshell")
    found = shell()
    return found is not None and not (terminal and isinstance(found, terminal.TerminalInteractiveShell))


def display(snapshots: Snapshots) -> None:
    """Show the snapshots of a run until its end. Interrupting the cell ends the run. Elsewhere than in a notebook they
    are shown as the command line shows them."""
    if not shows_in_place():
        from tsql.cli.snapshots import show_snapshots

        show_snapshots(snapshots)
        return
    place = _place(snapshots)
    shown: Snapshot | None = None
    drawn_at = 0.0
    state = ""
    try:
        for snap in snapshots:
            if snapshots.is_over or shown is None or time.monotonic() - drawn_at >= EVERY_SECONDS:
                place.show(snap, "")
                shown, drawn_at = snap, time.monotonic()
        state = "" if snapshots.is_complete else "stopped"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    except BaseException:
        state = "failed"
        raise
    finally:
        snapshots.stop()
        if state or shown is not snapshots.last:
            place.show(snapshots.last, state)


def display_or_tell(snapshots: Snapshots) -> None:
    """`display` for IPython's own call, which would show the object in another way after an error."""
    try:
        display(snapshots)
    except TsqlError:
        shell().showtraceback()


class Place(Protocol):
    """Where snapshots are shown, each instead of the one before."""

    def show(self, snap: Snapshot | None, state: str) -> None: ...


def _place(snapshots: Snapshots) -> Place:
    if importlib.util.find_spec("anywidget") is None:
        return Table()
    if not WIDGET.is_file():
        return Table(f"the chart is not drawn: this installation lacks {WIDGET.name}")
    return Chart(snapshots)


class Table:
    """A table in the output of the cell."""

    def __init__(self, note: str = ""):
        from IPython.display import display as ipython_display

        self.note = note
        self._handle = ipython_display(Shown(None, "", note), display_id=True)

    def show(self, snap: Snapshot | None, state: str) -> None:
        """Replace what is there."""
        self._handle.update(Shown(snap, state, self.note))


class Shown:
    """A snapshot, or what is shown before there is one, with the state of its run."""

    def __init__(self, snap: Snapshot | None, state: str, note: str):
        self.snap, self.state, self.note = snap, state, note

    def _repr_html_(self) -> str:
        import html

        told = waiting_html(self.state) if self.snap is None else html_of(self.snap, self.state)
        return told + (f"<div><small>{html.escape(self.note)}</small></div>" if self.note else "")

    def __repr__(self) -> str:
        told = "no snapshot yet" if self.snap is None else repr(self.snap)
        return "\n".join(part for part in (told, self.state, self.note) if part)


class Chart:
    """The chart of the studio, as a widget. Its buttons stop the run, or leave out what comes before the last
    snapshot."""

    def __init__(self, snapshots: Snapshots):
        from IPython.display import display as ipython_display

        self.snapshots = snapshots
        self.widget = widget_class()()
        self.widget.on_msg(self._told)
        ipython_display(self.widget)

    def show(self, snap: Snapshot | None, state: str) -> None:
        """Send the page a snapshot."""
        with self.widget.hold_sync():
            if snap is not None:
                self.widget.snapshot = frame(snap)
            self.widget.about = about(snap, state)

    def _told(self, _: Any, content: Any, buffers: Any) -> None:
        """A message of the page: `{type: "stop"}` or `{type: "finish"}`."""
        match content.get("type") if isinstance(content, dict) else None:
            case "stop":
                self.snapshots.stop()
            case "finish":
                self.snapshots.skip()


@functools.cache
def widget_class() -> Any:
    """The class of the widget, made when it is first used. Its traits are `snapshot`, the bytes of `frame`, and
    `about`."""
    import anywidget
    import traitlets

    members = {
        "_esm": WIDGET,
        "snapshot": traitlets.Bytes(b"").tag(sync=True),
        "about": traitlets.Dict({}).tag(sync=True),
        "__module__": __name__,
    }
    return type("SnapshotWidget", (anywidget.AnyWidget,), members)


def about(snap: Snapshot | None, state: str = "") -> dict[str, Any]:
    """What the page is told beside the rows."""
    if snap is None:
        return {"columns": [], "progress": 0.0, "rows_read": 0, "elapsed": 0.0, "is_final": False, "rows": 0,
                "bounds": [], "notes": {}, "row_status": None, "state": state}  # fmt: skip
    columns = zip(snap.table.column_names, snap.sql_types, strict=True)
    return {
        "columns": [{"name": name, "type": str(type)} for name, type in columns],
        "progress": snap.progress,
        "rows_read": snap.rows_read,
        "elapsed": snap.elapsed,
        "is_final": snap.is_final,
        "rows": snap.table.num_rows,
        "bounds": sorted(snap.bounds_at),
        "notes": dict(snap.notes),
        "row_status": None if snap.row_status is None else snap.row_status.slice(0, MOST_ROWS).to_pylist(),
        "state": state,
    }


def frame(snap: Snapshot, first: int = 0, count: int = MOST_ROWS) -> bytes:
    """Rows of a snapshot as an Arrow IPC stream for the page: the columns by position, `0`, `1`, .., since names may
    repeat, and `0 low` and `0 high` for one with bounds. What JavaScript has no exact number for is text."""
    names: list[str] = []
    columns: list[pa.ChunkedArray] = []
    for place in range(snap.table.num_columns):
        names.append(str(place))
        columns.append(_for_page(snap.table.column(place).slice(first, count)))
        bounds = snap.bounds_at.get(place)
        if bounds is not None:
            names += [f"{place} low", f"{place} high"]
            columns += [bounds.lower.slice(first, count), bounds.upper.slice(first, count)]
    table = pa.table(columns, names=names).combine_chunks()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue().to_pybytes()


def _for_page(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind, types = column.type, pa.types
    is_exact = (
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_string(kind)
        or types.is_date32(kind) or types.is_time(kind) or types.is_timestamp(kind)
    )  # fmt: skip
    return column if is_exact else pa.chunked_array([texts(chunk) for chunk in column.chunks], pa.string())
