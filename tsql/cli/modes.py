"""Results as lines of text for people and for other programs: Markdown, HTML, one value a line, values with a
separator.

`emit` (output.py) calls `write_mode` for the formats that are neither tables nor files. Rows are written as they come.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, TextIO

from tsql.cli.display import NULL, clean
from tsql.cli.terminal import cell_len
from tsql.values import texts

if TYPE_CHECKING:
    from tsql.relation import Relation

Row = list[str | None]
Batches = Iterator[list[Row]]
"""The texts of the values, batch by batch."""

MEASURED_ROWS = 10_000


def write_mode(relation: Relation, mode: str, file: TextIO) -> int:
    """Write a result; the number of its rows."""
    rows = 0

    def batches() -> Batches:
        nonlocal rows
        for batch in relation.batches():
            rows += batch.num_rows
            yield [list(row) for row in zip(*(texts(column) for column in batch.columns), strict=True)]

    MODES[mode](relation, batches(), file)
    return rows


def _separated(separator: str) -> Callable[[Relation, Batches, TextIO], None]:
    def write(relation: Relation, batches: Batches, file: TextIO) -> None:
        file.write(separator.join(relation.columns) + "\n")
        for rows in batches:
            file.writelines(separator.join("" if value is None else value for value in row) + "\n" for row in rows)

    return write


def _line(relation: Relation, batches: Batches, file: TextIO) -> None:
    """`name = value`, a line for each, and an empty one between two rows."""
    names = [clean(name) for name in relation.columns]
    width, first = max(map(cell_len, names), default=0), True
    for rows in batches:
        for row in rows:
            file.write("" if first else "\n")
            first = False
            file.writelines(
                f"{' ' * (width - cell_len(name))}{name} = {_shown(value)}\n"
                for name, value in zip(names, row, strict=True)
            )


def _markdown(relation: Relation, batches: Batches, file: TextIO) -> None:
    """A table in GitHub's Markdown, numbers right-aligned. The first rows determine the widths; wider values later
    overflow."""
    names, right = [_cell(name) for name in relation.columns], [t.is_numeric for t in relation.sql_types]
    begun: list[Row] = []
    while len(begun) < MEASURED_ROWS and (rows := next(batches, None)) is not None:
        begun += rows
    widths = [max(3, cell_len(name)) for name in names]
    for row in begun:
        widths = [max(width, cell_len(_cell(value))) for width, value in zip(widths, row, strict=True)]

    def line(cells: list[str]) -> str:
        padded = [
            " " * (w - cell_len(c)) + c if to_right else c + " " * (w - cell_len(c))
            for c, w, to_right in zip(cells, widths, right, strict=True)
        ]
        return f"| {' | '.join(padded)} |\n"

    file.write(line(names))
    file.write(
        "|"
        + "|".join(
            "-" * (width + 1) + (":" if to_right else "-") for width, to_right in zip(widths, right, strict=True)
        )
        + "|\n"
    )
    for rows in chain((begun,), batches):
        file.writelines(line([_cell(value) for value in row]) for row in rows)


def _html(relation: Relation, batches: Batches, file: TextIO) -> None:
    """The rows of a table; the page around it is somebody else's."""

    def line(tag: str, cells: Row) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(_shown(cell))}</{tag}>" for cell in cells) + "</tr>\n"

    file.write(line("th", list(relation.columns)))
    for rows in batches:
        file.writelines(line("td", row) for row in rows)


def _shown(value: str | None) -> str:
    return NULL if value is None else clean(value)


def _cell(value: str | None) -> str:
    return _shown(value).replace("|", "\\|")


MODES: dict[str, Callable[[Relation, Batches, TextIO], None]] = {
    "list": _separated("|"),
    "tabs": _separated("\t"),
    "line": _line,
    "markdown": _markdown,
    "html": _html,
}
