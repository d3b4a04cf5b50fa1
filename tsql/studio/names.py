"""What the page knows of a session: its tables with their columns, functions and keywords, and completions of a text.

`Connection` calls it for `hello`, `complete`, and after statements that change tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tsql.analyze import kinds
from tsql.analyze.statements import analyze
from tsql.catalog.catalog import Entry, Table, View, kind_of
from tsql.cli.completion import KEYWORDS, SqlCompleter
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.types import Type
from tsql.planner.logical import nodes as logical
from tsql.session import Session
from tsql.studio.places import position_of_units, units

MOST_COMPLETIONS = 300

COUNTED = ("parquet",)
"""Kinds of files that say how many rows they have."""


def tables(session: Session) -> list[dict[str, Any]]:
    """Every table and view, with its rows where they are known without counting. A view that cannot be read has no
    columns."""
    found = []
    for name, entry in session.catalog.entries():
        columns, rows = _described(session, name, entry)
        shown = [{"name": column, "type": str(type)} for column, type in columns]
        found.append({"name": name, "kind": kind_of(entry), "rows": rows, "columns": shown})
    return found


def _described(session: Session, name: str, entry: Entry) -> tuple[list[tuple[str, Type]], int | None]:
    """The columns of a table or a view, and its rows."""
    if isinstance(entry, View):
        try:
            (found,) = analyze(f"DESCRIBE {quote(name)}", session.catalog, {}, None)
        except TsqlError:
            return [], None
        assert isinstance(found, kinds.Describe)
        scan = found.query.plan.input
        if isinstance(scan, logical.Scan) and (scan.source.describe() or {}).get("kind") in COUNTED:
            return list(found.columns), scan.source.statistics().rows
        return list(found.columns), None
    source = entry.data if isinstance(entry, Table) else entry
    # Files of text know their rows only when they have been read.
    is_known = isinstance(entry, Table) or getattr(source, "in_memory", False)
    rows = source.statistics().rows if is_known and hasattr(source, "statistics") else None
    return [(field.name, field.type) for field in source.schema], rows


class StudioCompleter(SqlCompleter):
    """The completer of the shell, which knows the columns of views, too: files are views here."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.catalog, ())
        self._session, self._version = session, -1
        self._views: dict[str, tuple[str, ...]] = {}

    def columns_of(self, table: str) -> Sequence[str]:
        entry = self.catalog.entry(table)
        if not isinstance(entry, View):
            return super().columns_of(table)
        if self._version != self.catalog.version:
            self._version = self.catalog.version
            self._views.clear()
        if table not in self._views:
            columns, _ = _described(self._session, table, entry)
            self._views[table] = tuple(name for name, _ in columns)
        return self._views[table]


@cache
def functions() -> tuple[dict[str, str], ...]:
    """Every function by the name that SQL calls it."""
    from tsql.analyze.table_functions import TABLE_FUNCTIONS
    from tsql.backends.io.kinds import FILE_FUNCTIONS
    from tsql.grammar.time.nodes import FUNCTIONS as TIME_FUNCTIONS
    from tsql.kernels.aggregates.registry import AGGREGATES
    from tsql.kernels.functions.registry import SCALARS
    from tsql.kernels.windows.registry import WINDOW_FUNCTIONS

    kinds_of = {
        "scalar": SCALARS.names(),
        "aggregate": AGGREGATES.names(),
        "window": sorted(WINDOW_FUNCTIONS),
        "table": sorted({*FILE_FUNCTIONS, *TABLE_FUNCTIONS, *map(str.lower, TIME_FUNCTIONS)}),
    }
    return tuple(
        {"name": name, "kind": kind} for kind, names in kinds_of.items() for name in names if name.isidentifier()
    )


def keywords() -> tuple[str, ...]:
    """The words of the grammar."""
    return KEYWORDS


def completions(completer: StudioCompleter, text: str, position: int) -> dict[str, Any]:
    """What may stand at a position (in UTF-16 units): `start` is where the replaced text begins."""
    at = position_of_units(text, position)
    start, items = at, []
    for found in completer.get_completions(Document(text, at), CompleteEvent(completion_requested=True)):
        start = at + found.start_position
        items.append({"text": found.text, "kind": found.display_meta_text or "file", "about": found.display_text})
        if len(items) == MOST_COMPLETIONS:
            break
    return {"start": units(text[:start]), "items": items}
