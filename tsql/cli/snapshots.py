"""Progressive queries on the command line: a table that settles on a terminal, a line of JSON per snapshot in a
pipe."""

from __future__ import annotations

import io
import json
import math
import os
import select
import sys
import termios
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from tsql.backends.io.writers import write
from tsql.cli.display import Excerpt, Line, lines, print_lines, speaks_unicode
from tsql.snapshot_text import error_text, percent, value_text
from tsql.snapshots import Snapshot, Snapshots, started
from tsql.values import texts

if TYPE_CHECKING:
    from rich.text import Text

    from tsql.relation import Relation

MOST_ROWS = 20
"""A table that is drawn again and again has at most so many rows."""
REFRESHES = 10
"""A second. Each draws what is known then: snapshots may come faster."""
BAR = 20
_HEAD_LINES = 4
"""Frame, names and types stand above the rows of a table."""
_OTHER_LINES = 11
"""What is on the screen besides the rows, at most."""


def print_snapshots(relation: Relation, file: TextIO) -> int:
    """Write an object per snapshot: progress, rows_read, seconds, is_final, bounds by column, row_status, notes, and
    the rows."""
    rows = 0
    with relation.snapshots() as found:
        for snap in found:
            rows = snap.table.num_rows
            told: dict[str, Any] = {
                "progress": round(snap.progress, 6),
                "rows_read": snap.rows_read,
                "seconds": round(snap.elapsed, 6),
                "is_final": snap.is_final,
                "bounds": {
                    name: [list(pair) for pair in zip(_finite(one.lower), _finite(one.upper), strict=True)]
                    for name, one in snap.bounds.items()
                },
                "row_status": None if snap.row_status is None else snap.row_status.to_pylist(),
                "notes": snap.notes,
            }
            text = json.dumps(told, ensure_ascii=False, allow_nan=False)
            file.write(f'{text[:-1]}, "rows": [{_json_rows(snap)}]}}\n')
            file.flush()
    return rows


def _finite(bounds: pa.ChunkedArray) -> list[float | None]:
    """Bounds for JSON, which has no infinity."""
    return [None if value is None or not math.isfinite(value) else value for value in bounds.to_pylist()]


def _json_rows(snap: Snapshot) -> str:
    """The rows as objects, written as the whole result would be."""
    stream = io.BytesIO()
    write(snap.table.to_batches(), snap.table.schema, "json", stream)
    return ", ".join(stream.getvalue().decode().splitlines())


def show_snapshots(found: Snapshots, max_rows: int | None = None) -> int:
    """Draw the table again and again while the query runs; the number of rows at the end. Enter accepts the answer as
    it stands, Ctrl-C stops the query."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    screen = Screen(found, sys.stdout)
    with found:
        try:
            with Enter(screen.accept) as enter:
                screen.hint = "Enter accepts, Ctrl-C stops" if enter.is_read else "Ctrl-C stops"
                with Live(
                    console=console,
                    get_renderable=lambda: screen.draw(console.width, console.height),
                    refresh_per_second=REFRESHES,
                    transient=True,
                    vertical_overflow="crop",
                ):
                    for _ in found:
                        if screen.is_accepted:
                            break
        except KeyboardInterrupt:
            screen.print("stopped", max_rows)
            raise
        state = "exact" if found.last is not None and found.last.is_final else ""
        screen.print("accepted" if screen.is_accepted and not state else state, max_rows)
    return 0 if found.last is None else found.last.table.num_rows


class Screen:
    """What a terminal shows of a run."""

    def __init__(self, found: Snapshots, stream: TextIO):
        self.found, self.stream = found, stream
        self.ascii_only = not speaks_unicode(stream)
        self.hint = ""
        self.is_accepted = False
        self._drawn: tuple[object, list[Line]] = (None, [])

    def accept(self) -> None:
        """Take the answer as it stands; the first one that comes, if there is none yet."""
        self.is_accepted = True
        if self.found.last is not None:
            self.found.stop()

    def draw(self, width: int, height: int) -> Text:
        """The run at this moment, on a screen of this size."""
        from rich.text import Text

        found, snap = self.found, self.found.last
        progress, rows = (0.0, 0) if snap is None else (snap.progress, snap.rows_read)
        head = [
            headline(progress, rows, found.elapsed, read=found.progress, width=width, ascii_only=self.ascii_only),
            [(self.hint, "dim")],
        ]
        if snap is not None and self._drawn[0] != (id(snap), width, height):
            most = max(1, min(MOST_ROWS, height - _OTHER_LINES))
            self._drawn = (id(snap), width, height), table_lines(snap, width, most, self.ascii_only)
        shown = Text(no_wrap=True, overflow="crop")
        for number, line in enumerate((*head, *self._drawn[1])):
            shown.append("\n" * (number > 0))
            for text, style in line:
                shown.append(text, style)
        return shown

    def print(self, state: str, max_rows: int | None) -> None:
        """Print the answer that stays on the screen."""
        snap = self.found.last
        if snap is None:
            return
        width = height = None
        if self.stream.isatty():
            from rich.console import Console

            size = Console(file=self.stream).size
            width, height = size.width, size.height
        most = max_rows if max_rows is not None else max(6, (height or 40) - _OTHER_LINES)
        head = headline(snap.progress, snap.rows_read, snap.elapsed, state, width=width)
        print_lines(self.stream, [head, *table_lines(snap, width, most, self.ascii_only)])


def headline(
    progress: float,
    rows: int,
    elapsed: float,
    state: str = "",
    *,
    read: float | None = None,
    width: int | None = None,
    ascii_only: bool = False,
) -> Line:
    """How far a snapshot is, behind a bar that shows how much has been read by now. On a narrow terminal it says
    less."""
    end = f", {rows:,} rows, {elapsed:.2f} s" + f" ({state})" * bool(state)
    told = f"{percent(progress)} of the input{end}"
    if read is None or (width is not None and len(told) + BAR + 1 > width):
        return [(told if width is None or len(told) <= width else f"{percent(progress)}{end}", "bold")]
    full, empty = ("#", "-") if ascii_only else ("━", "─")
    done = min(BAR, int(read * BAR))
    return [(full * done, "green"), (empty * (BAR - done), "dim"), (f" {told}", "bold")]


def table_lines(snap: Snapshot, width: int | None, max_rows: int, ascii_only: bool = False) -> list[Line]:
    """The table of a snapshot: values with half the width of their bounds, rows that may change marked, and what is
    said of columns. `max_rows` 0 shows all rows."""
    rows = snap.table.num_rows
    last = 0 if max_rows == 0 or rows <= max_rows else max_rows // 2
    first = rows if max_rows == 0 else min(rows, max_rows - last)
    places = [(0, first), (rows - last, last)]
    arrays = []
    for place, column in enumerate(snap.table.columns):
        values = _parts(column, places)
        bounds = None if snap.is_final else snap.bounds_at.get(place)
        if bounds is not None:
            pairs = zip(_parts(bounds.lower, places).to_pylist(), _parts(bounds.upper, places).to_pylist(), strict=True)
            values = pa.array(
                [with_error(*cell) for cell in _aligned(values, [_half(*pair) for pair in pairs], ascii_only)],
                pa.string(),
            )
        arrays.append(values)
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])
    found = Excerpt([batch.slice(0, first)], [batch.slice(first)] if last else [], rows)
    status = [] if snap.row_status is None else _parts(snap.row_status, places).to_pylist()
    is_marked = "possible" in status
    room = width - 2 if width is not None and is_marked else width
    picture = lines(snap.table.column_names, snap.sql_types, found, room, ascii_only=ascii_only)
    for row, known in enumerate(status):
        if known == "possible":
            picture[_HEAD_LINES + row + (3 if last and row >= first else 0)].append((" ?", "yellow"))
    if is_marked:
        picture.append([(" ? may leave, or its place", "dim")])
    if not snap.is_final:
        by_note: dict[str, list[str]] = {}
        for name, note in snap.notes.items():
            by_note.setdefault(note, []).append(name)
        picture += [[(f" {', '.join(names)}: {note}", "dim")] for note, names in by_note.items()]
    return picture


def _parts(column: pa.ChunkedArray, places: list[tuple[int, int]]) -> pa.Array:
    """The rows of a column at these places."""
    chunks = [chunk for start, count in places for chunk in column.slice(start, count).chunks]
    found = pa.chunked_array(chunks, column.type).combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _half(low: float | None, high: float | None) -> float | None:
    if low is None or high is None or not math.isfinite(high - low):
        return None
    return (high - low) / 2


def _aligned(values: pa.Array, errors: list[float | None], ascii_only: bool) -> list[tuple[str | None, str, int]]:
    """Each value as text, with the text of its error and the width of this part of the column."""
    told = [value_text(value, text, error) for value, text, error in zip(values, texts(values), errors, strict=True)]
    sign = " +/- " if ascii_only else " ± "
    parts = ["" if error is None else sign + error_text(error) for error in errors]
    width = max(map(len, parts), default=0)
    return [(value, part, width) for value, part in zip(told, parts, strict=True)]


def with_error(value: str | None, error: str, width: int) -> str | None:
    """A cell of a column whose values stand below each other."""
    return None if value is None else value + error.ljust(width)


def text_of(snap: Snapshot, max_rows: int = MOST_ROWS, max_width: int = 120) -> str:
    """A snapshot as plain text."""
    head = headline(snap.progress, snap.rows_read, snap.elapsed, "exact" if snap.is_final else "")
    return "\n".join("".join(text for text, _ in line) for line in (head, *table_lines(snap, max_width, max_rows)))


class Enter:
    """A context in which the Enter key calls a function. What is typed is not shown meanwhile, since it would move the
    table; what is typed without Enter stays for whoever reads next. Where stdin is no terminal, or that of another job,
    nothing is read."""

    def __init__(self, pressed: Callable[[], None]):
        self._pressed = pressed
        self._thread: threading.Thread | None = None
        self._terminal = self._wake = self._end = -1
        self._kept: list[Any] = []

    @property
    def is_read(self) -> bool:
        return self._thread is not None

    def __enter__(self) -> Enter:
        try:
            self._terminal = sys.stdin.fileno()
            if not os.isatty(self._terminal) or not self._is_ours():
                return self
            self._kept = termios.tcgetattr(self._terminal)
        except (OSError, ValueError, AttributeError, termios.error):
            return self
        quiet = list(self._kept)
        quiet[3] &= ~termios.ECHO
        self._wake, self._end = os.pipe()
        self._thread = started(self._serve, "tsql-enter")
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, quiet)
        return self

    def _is_ours(self) -> bool:
        """Whether this is the job that the terminal talks to. Another one would be stopped for touching it."""
        return os.tcgetpgrp(self._terminal) == os.getpgrp()

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._terminal, self._wake], [], [])
            if self._wake in ready:
                return
            if not self._is_ours():
                if select.select([self._wake], [], [], 0.2)[0]:
                    return
                continue
            # The terminal hands out whole lines; an empty read is Ctrl-D.
            line = os.read(self._terminal, 65536)
            if line.endswith(b"\n"):
                self._pressed()
            if not line or line.endswith(b"\n"):
                return

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        os.write(self._end, b"x")
        self._thread.join()
        os.close(self._wake)
        os.close(self._end)
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._kept)
