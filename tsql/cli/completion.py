"""Completion for the shell: keywords, functions, tables, their columns, files inside quotes, and dot commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from tsql.catalog.catalog import Catalog, Table, View, kind_of

_KEYWORD_TEXT = """
ALL ANALYZE AND AS ASC BETWEEN BY CASE CAST COMPILE CREATE CUBE DESC DESCRIBE DISTINCT DROP ELSE END EXCEPT EXCLUDE
EXECUTE EXISTS EXPLAIN FALSE FILTER FIRST FOR FROM GROUP GROUPING HAVING IF ILIKE IN INTERSECT INTERVAL IS KIR LAST LIKE
LIMIT LLVM LOGICAL NOT NULL NULLS OFFSET ON OR ORDER PHYSICAL PIPELINES PLAN REPLACE ROLLUP SELECT SET SETS SHOW TABLE
TABLES THEN TRUE TRY_CAST UNION USING VALUES VIEW WHEN WHERE WITH
ALTER BEGIN CHECK CHECKPOINT COLUMN COMMIT CONFLICT COPY DEFAULT DELETE INSERT INTO KEY MACRO PRIMARY RENAME RETURNING
ROLLBACK SUMMARIZE TEMP TO TRUNCATE TYPE UNIQUE UPDATE
BIGINT BLOB BOOLEAN DATE DECIMAL DOUBLE FLOAT HUGEINT INTEGER SMALLINT TIME TIMESTAMP TIMESTAMPTZ TINYINT UBIGINT
UINTEGER USMALLINT UTINYINT VARCHAR
ASOF CHANGES CHOP CLIP CUMULATE DEFINE EMIT EVERY EXTEND FINAL HOP LIFETIME MATCH_RECOGNIZE MEASURES PATTERN PERIOD
POINT_AT_END PROGRESSIVE QUANTIZE SEQUENCED SESSION SHIFT SLIDE STITCH STREAM STREAMS TOLERANCE TUMBLE VALIDTIME
VALID_TIME WATERMARK WITHIN
"""
KEYWORDS = tuple(_KEYWORD_TEXT.split())
_WORD = re.compile(r"[A-Za-z_][\w]*$")
_QUALIFIED = re.compile(r"(?:([A-Za-z_]\w*)|\"([^\"]+)\")\.(\w*)$")


def _functions() -> list[str]:
    from tsql.backends.io.kinds import FILE_FUNCTIONS
    from tsql.kernels.aggregates.registry import AGGREGATES
    from tsql.kernels.functions.registry import SCALARS

    return [name for name in (*SCALARS.names(), *AGGREGATES.names(), *FILE_FUNCTIONS) if name.isidentifier()]


class SqlCompleter(Completer):
    """Completes the word before the cursor from what the session knows."""

    def __init__(self, catalog: Catalog, commands: Iterable[str]) -> None:
        self.catalog = catalog
        self.commands = sorted(commands)
        self._paths = PathCompleter(expanduser=False)
        self._function_names: list[str] | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        if before.startswith("."):
            if " " not in before:
                yield from (Completion(name, -len(before)) for name in self.commands if name.startswith(before))
            elif before.startswith((".read ", ".open ")):
                yield from self._path(before.partition(" ")[2], complete_event)
            return
        if before.count("'") % 2:
            yield from self._path(before.rpartition("'")[2], complete_event)
            return
        qualified = _QUALIFIED.search(before)
        table = None if qualified is None else self._table_of(qualified[1] or qualified[2], document.text)
        if qualified is not None and table is not None:
            for name in self.columns_of(table):
                if name.lower().startswith(qualified[3].lower()):
                    yield Completion(self._spell(name, "column", ""), -len(qualified[3]), display_meta="column")
            return
        word = _WORD.search(before)
        if word is None:
            return
        start = word.group().lower()
        seen: set[str] = set()
        for name, kind in self._candidates(document.text):
            if name.lower().startswith(start) and name.lower() not in seen:
                seen.add(name.lower())
                yield Completion(self._spell(name, kind, word.group()), -len(start), display_meta=kind)

    def _path(self, fragment: str, event: CompleteEvent) -> Iterator[Completion]:
        yield from self._paths.get_completions(Document(fragment), event)

    def _candidates(self, text: str) -> Iterator[tuple[str, str]]:
        tables = self.catalog.names()
        mentioned = [name for name in tables if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)]
        for table in mentioned or tables:
            yield from ((name, "column") for name in self.columns_of(table))
        yield from ((name, kind_of(entry)) for name, entry in self.catalog.entries())
        yield from ((name, "keyword") for name in KEYWORDS)
        if self._function_names is None:
            self._function_names = _functions()
        yield from ((name, "function") for name in self._function_names)

    def columns_of(self, table: str) -> Sequence[str]:
        """The columns of a table. Those of a view would take an analysis."""
        entry = self.catalog.entry(table)
        entry = entry.data if isinstance(entry, Table) else entry
        return () if entry is None or isinstance(entry, View) else entry.schema.names

    def _table_of(self, qualifier: str, text: str) -> str | None:
        """The table that a name before a dot stands for: its own name, or an alias of it in the text."""
        tables = self.catalog.names()
        for name in tables:
            if name.lower() == qualifier.lower():
                return name
        for name in tables:
            if re.search(rf'\b{re.escape(name)}"?\s+(?:AS\s+)?"?{re.escape(qualifier)}\b', text, re.IGNORECASE):
                return name
        return None

    @staticmethod
    def _spell(name: str, kind: str, typed: str) -> str:
        """Keywords follow the case of what was typed; names that need quotes get them."""
        if kind == "keyword":
            return name.lower() if typed.islower() else name
        if kind == "function" or re.fullmatch(r"[A-Za-z_]\w*", name):
            return name
        return '"' + name.replace('"', '""') + '"'
