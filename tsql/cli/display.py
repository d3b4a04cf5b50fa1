"""Shows relations to people: tables with types under the names, cut to the width and height of the terminal.

The layout is that of DuckDB's box renderer. A result is read as a stream, and only the rows that can be shown are kept.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from tsql.cli.terminal import cell_len, console_of
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.values import texts

if TYPE_CHECKING:
    from tsql.relation import Relation

Line = list[tuple[str, str]]
"""(text, style) pairs."""

NULL = "NULL"
_DOTS = 3
_FRAME_LINES = 8
_MIN_ROWS = 6
_NARROW = 12
_PLAIN_ROWS = 40
_UNICODE = {"h": "─", "v": "│", "top": "┌┬┐", "middle": "├┼┤", "bottom": "└┴┘", "dot": "·", "more": "…"}
_ASCII = {"h": "-", "v": "|", "top": "+++", "middle": "+++", "bottom": "+++", "dot": ".", "more": "~"}


@dataclass
class Excerpt:
    """The rows of a result that are shown: the first ones, the last ones if something is left out between, and how many
    there are in all (`more`: at least that many)."""

    head: list[pa.RecordBatch]
    tail: list[pa.RecordBatch]
    rows: int
    more: bool = False

    @property
    def shown(self) -> int:
        return sum(b.num_rows for b in self.head) + sum(b.num_rows for b in self.tail)


def excerpt(batches: Generator[pa.RecordBatch, None, None], max_rows: int, read_rows: int | None = None) -> Excerpt:
    """Read a stream to its end (or to `read_rows`), keeping at most its first and last rows. `max_rows` 0 keeps all."""
    if max_rows == 0:
        kept = list(batches)
        return Excerpt(kept, [], sum(b.num_rows for b in kept))
    last_rows = max_rows // 2
    head: list[pa.RecordBatch] = []
    tail: deque[pa.RecordBatch] = deque()
    rows = head_rows = tail_rows = 0
    more = False
    with closing(batches):
        for batch in batches:
            rows += batch.num_rows
            if head_rows < max_rows:
                head.append(batch.slice(0, max_rows - head_rows))
                head_rows += head[-1].num_rows
            tail.append(batch.slice(max(0, batch.num_rows - last_rows)))
            tail_rows += tail[-1].num_rows
            while len(tail) > 1 and tail_rows - tail[0].num_rows >= last_rows:
                tail_rows -= tail.popleft().num_rows
            if read_rows is not None and rows >= read_rows:
                more = True
                break
    if rows <= max_rows:
        return Excerpt(head, [], rows, more)
    return Excerpt(_first(head, max_rows - last_rows), _last(list(tail), last_rows), rows, more)


def _first(batches: list[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    kept = []
    for batch in batches:
        kept.append(batch.slice(0, rows))
        rows -= kept[-1].num_rows
    return kept


def _last(batches: list[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    surplus = sum(b.num_rows for b in batches) - rows
    return [batches[0].slice(surplus), *batches[1:]] if surplus > 0 and batches else batches


def clean(text: str) -> str:
    """The text on one line and without control characters, which could otherwise steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable()
        else {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(c, f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
        for c in text
    )


@dataclass
class _Column:
    name: str
    type: str
    cells: list[str | None]
    right: bool
    width: int = 0

    def measure(self) -> tuple[int, int]:
        """(the width it may be cut to, the width it wants); numbers are not cut."""
        cells = max((cell_len(NULL if c is None else c) for c in self.cells), default=0)
        wanted = max(cells, cell_len(self.name), cell_len(self.type), 1)
        least = max(cells, cell_len(self.type)) if self.right else min(_NARROW, wanted)
        return max(1, least), wanted


def _columns(names: list[str], types: tuple[Type, ...], found: Excerpt) -> list[_Column]:
    columns = []
    for index, (name, t) in enumerate(zip(names, types, strict=True)):
        cells: list[str | None] = []
        for batch in (*found.head, *found.tail):
            cells += [None if value is None else clean(value) for value in texts(batch.column(index))]
        columns.append(_Column(clean(name), str(t).lower(), cells, t.is_numeric))
    return columns


def _fit(columns: list[_Column], max_width: int | None) -> tuple[list[_Column], int | None]:
    """Choose the columns to show and their widths; also where a column of `…` stands for those left out."""
    sizes = {id(c): c.measure() for c in columns}
    gap: int | None = None
    if max_width is not None:
        room = max_width - 1
        if sum(sizes[id(c)][0] + 3 for c in columns) > room:
            columns, gap = _drop_middle(columns, sizes, room - 4)
            room -= 4 * (gap is not None)
    for column in columns:
        column.width = sizes[id(column)][1]
    if max_width is not None and sum(c.width + 3 for c in columns) > room:
        _squeeze(columns, sizes, room)
    return columns, gap


def _drop_middle(
    columns: list[_Column], sizes: dict[int, tuple[int, int]], room: int
) -> tuple[list[_Column], int | None]:
    left, right, used = 0, len(columns), 0
    from_left = True
    while left < right:
        candidate = columns[left] if from_left else columns[right - 1]
        used += sizes[id(candidate)][0] + 3
        if used > room and left > 0:
            break
        left, right = (left + 1, right) if from_left else (left, right - 1)
        from_left = not from_left
    return columns[:left] + columns[right:], left if left < right else None


def _squeeze(columns: list[_Column], sizes: dict[int, tuple[int, int]], room: int) -> None:
    """Lower the widest columns to one common width until all fit."""
    low, high = 1, max((c.width for c in columns), default=1)
    while low < high:
        cap = (low + high + 1) // 2
        if sum(max(sizes[id(c)][0], min(c.width, cap)) + 3 for c in columns) <= room:
            low = cap
        else:
            high = cap - 1
    for column in columns:
        column.width = min(max(sizes[id(column)][0], min(column.width, low)), max(1, room - 3))


def lines(
    names: list[str], types: tuple[Type, ...], found: Excerpt, max_width: int | None = None, *, ascii_only: bool = False
) -> list[Line]:
    """The whole picture: frame, names, types, rows, and the footer with the counts."""
    marks = _ASCII if ascii_only else _UNICODE
    everything = _columns(names, types, found)
    columns, gap = _fit(everything, max_width)
    hidden = len(everything) - len(columns)
    widths = [c.width for c in columns]
    if gap is not None:
        widths.insert(gap, 1)
    picture = [_rule(widths, "top", marks)]
    picture.append(_row([_center(c.name, c.width, marks) for c in columns], ["bold"] * len(columns), gap, marks))
    picture.append(_row([_center(c.type, c.width, marks) for c in columns], ["dim"] * len(columns), gap, marks))
    picture.append(_rule(widths, "middle", marks))
    split = sum(b.num_rows for b in found.head)
    for index in range(found.shown):
        if index == split:
            picture += [
                _row([_align(marks["dot"], c, marks) for c in columns], ["dim"] * len(columns), gap, marks)
            ] * _DOTS
        cells = [c.cells[index] for c in columns]
        styles = ["dim" if cell is None else "" for cell in cells]
        picture.append(
            _row(
                [_align(NULL if cell is None else cell, c, marks) for cell, c in zip(cells, columns, strict=True)],
                styles,
                gap,
                marks,
            )
        )
    picture.append(_rule(widths, "bottom", marks))
    picture.append([(_footer(found, len(everything), hidden), "dim")])
    return picture


def _rule(widths: list[int], place: str, marks: dict[str, str]) -> Line:
    left, cross, right = marks[place]
    return [(left + cross.join(marks["h"] * (w + 2) for w in widths) + right, "dim")]


def _row(cells: list[str], styles: list[str], gap: int | None, marks: dict[str, str]) -> Line:
    pairs = list(zip(cells, styles, strict=True))
    if gap is not None:
        pairs.insert(gap, (marks["more"], "dim"))
    line: Line = [(marks["v"], "dim")]
    for cell, style in pairs:
        line += [(f" {cell} ", style), (marks["v"], "dim")]
    return line


def _cut(text: str, width: int, marks: dict[str, str]) -> str:
    if cell_len(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + marks["more"]


def _center(text: str, width: int, marks: dict[str, str]) -> str:
    text = _cut(text, width, marks)
    space = width - cell_len(text)
    return " " * (space // 2) + text + " " * (space - space // 2)


def _align(text: str, column: _Column, marks: dict[str, str]) -> str:
    text = _cut(text, column.width, marks)
    space = " " * (column.width - cell_len(text))
    return space + text if column.right else text + space


def _footer(found: Excerpt, columns: int, hidden: int) -> str:
    rows = f" {'more than ' * found.more}{found.rows:,} row{'s' * (found.rows != 1)}"
    if found.shown < found.rows:
        rows += f" ({found.shown:,} shown)"
    return rows + (f"  {columns} columns ({columns - hidden} shown)" if hidden else "")


def table_text(
    relation: Relation, max_rows: int = 20, max_width: int | None = 120, read_rows: int | None = None
) -> str:
    """The table as plain text."""
    found = excerpt(relation.batches(), max_rows, read_rows)
    return "\n".join(
        "".join(part for part, _ in line) for line in lines(relation.columns, relation.sql_types, found, max_width)
    )


def print_table(
    relation: Relation,
    *,
    max_rows: int | None = None,
    max_width: int | None = None,
    file: TextIO | None = None,
    plain_rows: int = _PLAIN_ROWS,
) -> int:
    """Print the table and return how many rows there are. Without limits it is cut to the terminal; where the output is
    no terminal, to `plain_rows` rows of any width."""
    stream = file if file is not None else sys.stdout
    console = console_of(stream)
    if console is not None:
        max_width = max_width or console.width
        max_rows = max(_MIN_ROWS, console.height - _FRAME_LINES - _DOTS) if max_rows is None else max_rows
    max_rows = plain_rows if max_rows is None else max_rows
    if not relation.columns:
        for _ in relation.batches():
            pass
        from rich.console import Console

        Console(file=stream, highlight=False, soft_wrap=True).print(relation.message or "ok", markup=False)
        return 0
    found = excerpt(relation.batches(), max_rows)
    print_lines(
        stream, lines(relation.columns, relation.sql_types, found, max_width, ascii_only=not speaks_unicode(stream))
    )
    return found.rows


def print_lines(stream: TextIO, picture: list[Line]) -> None:
    """Print styled lines: through rich on a terminal, as plain text elsewhere."""
    console = console_of(stream)
    if console is None:
        stream.write("".join("".join(part for part, _ in line) + "\n" for line in picture))
        return
    from rich.text import Text

    for line in picture:
        console.print(Text.assemble(*line), soft_wrap=True)


def speaks_unicode(stream: Any) -> bool:
    """Whether a stream's encoding has the characters of a frame."""
    try:
        "│…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
