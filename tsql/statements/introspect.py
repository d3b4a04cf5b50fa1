"""SHOW TABLES, DESCRIBE and SUMMARIZE: relations about relations, with DuckDB's columns."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa

from tsql.backends.io.value_text import texts
from tsql.catalog.catalog import Catalog
from tsql.catalog.definition import Table, View
from tsql.catalog.external import SINK, External, watermark_text
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DECIMAL, VARCHAR, Type
from tsql.relation import Relation, of_table

DESCRIBE_COLUMNS = ("column_name", "column_type", "null", "key", "default", "extra")
SUMMARY_COLUMNS = (
    "column_name",
    "column_type",
    "min",
    "max",
    "approx_unique",
    "avg",
    "std",
    "q25",
    "q50",
    "q75",
    "count",
    "null_percentage",
)
_SUMMARY_TYPES = (
    VARCHAR,
    VARCHAR,
    VARCHAR,
    VARCHAR,
    BIGINT,
    VARCHAR,
    VARCHAR,
    VARCHAR,
    VARCHAR,
    VARCHAR,
    BIGINT,
    DECIMAL(9, 2),
)


def describe(names: tuple[str, ...], types: tuple[Type, ...], entry: Any) -> Relation:
    """The columns of a query, or of a table with its constraints."""
    count = len(names)
    nulls, keys, defaults = ["YES"] * count, [None] * count, [None] * count
    if isinstance(entry, Table):
        for i, column in enumerate(entry.definition.columns):
            nulls[i] = "NO" if column.not_null else "YES"
            keys[i] = _key_word(entry, column.name)
            defaults[i] = column.default
    columns: list[list[Any]] = [
        list(names),
        [type_name(t) for t in types],
        nulls,
        keys,
        defaults,
        [_extra(entry, name) for name in names],
    ]
    return of_table(DESCRIBE_COLUMNS, (VARCHAR,) * 6, columns)


def _extra(entry: Any, name: str) -> str | None:
    """What a column is in the time of its rows."""
    period, watermark = getattr(entry, "period", None), getattr(entry, "watermark", None)
    found = [watermark_text(watermark)] if watermark is not None and name == watermark.column else []
    found += [f"PERIOD {word}" for word, column in zip(("START", "END"), period or (), strict=False) if name == column]
    return ", ".join(found) or None


def type_name(t: Type) -> str:
    """A type as DuckDB's catalog spells it."""
    return "TIMESTAMP WITH TIME ZONE" if t.name == "TIMESTAMPTZ" else str(t)


def _key_word(table: Table, name: str) -> str | None:
    found = [key for key in table.definition.keys if name in key.columns]
    return None if not found else "PRI" if any(key.primary for key in found) else "UNI"


def show_tables(catalog: Catalog) -> Relation:
    return of_table(("name",), (VARCHAR,), [catalog.names()])


def show_streams(catalog: Catalog) -> Relation:
    """The streams: where their rows come from, and how their time goes on."""
    shown = ("name", "event_time", "watermark", "connector", "path")
    rows = []
    for name, entry in catalog.entries():
        if isinstance(entry, External) and entry.kind == "stream":
            watermark = None if entry.watermark is None else watermark_text(entry.watermark)
            files = (None, None) if entry.files is None else (entry.files.connector, ", ".join(entry.files.paths))
            if entry.connection is not None and entry.files is None:
                files = (entry.connection.connector, None)
            rows.append((name, entry.event_time, watermark, *files))
    return of_table(
        shown, (VARCHAR,) * len(shown), [list(c) for c in zip(*rows, strict=True)] if rows else [[]] * len(shown)
    )


def show_sinks(catalog: Catalog) -> Relation:
    """The sinks, as the statements that make them again."""
    rows = [
        (name, entry.connection.connector, entry.create_text(name))
        for name, entry in catalog.entries()
        if isinstance(entry, External) and entry.kind == SINK and entry.connection is not None
    ]
    shown = ("name", "connector", "statement")
    return of_table(shown, (VARCHAR,) * 3, [list(c) for c in zip(*rows, strict=True)] if rows else [[]] * 3)


def show_all_tables(
    catalog: Catalog, database: str, columns_of: Callable[[str], tuple[tuple[str, ...], tuple[Type, ...]]]
) -> Relation:
    """Every table and view with its columns; the lists are texts."""
    rows: list[tuple[Any, ...]] = []
    for name, entry in catalog.entries():
        names, types = (
            columns_of(name)
            if isinstance(entry, View)
            else _schema_of(entry if isinstance(entry, External) else catalog.lookup(name))
        )
        temporary = bool(getattr(entry, "temporary", False))
        rows.append(
            (
                "temp" if temporary else database,
                "main",
                name,
                f"[{', '.join(names)}]",
                f"[{', '.join(map(type_name, types))}]",
                temporary,
            )
        )
    shown = ("database", "schema", "name", "column_names", "column_types", "temporary")
    return of_table(
        shown, (VARCHAR,) * 5 + (BOOLEAN,), [list(c) for c in zip(*rows, strict=True)] if rows else [[]] * 6
    )


def _schema_of(source: Any) -> tuple[tuple[str, ...], tuple[Type, ...]]:
    return source.schema.names, tuple(f.type for f in source.schema)


def summarize(names: tuple[str, ...], types: tuple[Type, ...], run: Callable[[str], pa.Table]) -> Relation:
    """A row per column. `run` gives the result of a query over the relation, whose name in it is "#summarized" and
    whose columns are c0, c1, .."""
    items: list[str] = ["count(*)"]
    for i, t in enumerate(types):
        c = quote(f"c{i}")
        items += (
            [f"count({c})", f"min({c})", f"max({c})", f"approx_count_distinct({c})"]
            if t.name != "INTERVAL"
            else [f"count({c})", "NULL", "NULL", "NULL"]
        )
        items += [f"avg({c})", f"stddev({c})"] if t.is_numeric else ["NULL", "NULL"]
        items += [_quantile(c, t, q) for q in (0.25, 0.5, 0.75)]
    row = run(f'SELECT {", ".join(f"{item} AS s{i}" for i, item in enumerate(items))} FROM "#summarized"')
    found = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in row.columns]
    rows: int = found[0][0].as_py()
    table: list[tuple[Any, ...]] = []
    for i, (name, t) in enumerate(zip(names, types, strict=True)):
        count, low, high, distinct, mean, deviation, *quantiles = found[1 + 9 * i : 10 + 9 * i]
        present = count[0].as_py()
        percentage = (
            None if not rows else (Decimal(100 * (rows - present)) / rows).quantize(Decimal("0.01"), ROUND_HALF_UP)
        )
        shown = [texts(one)[0].as_py() for one in (low, high)]
        table.append(
            (
                name,
                type_name(t),
                *shown,
                distinct[0].as_py(),
                *(texts(one)[0].as_py() for one in (mean, deviation, *quantiles)),
                rows,
                percentage,
            )
        )
    return of_table(SUMMARY_COLUMNS, _SUMMARY_TYPES, [list(c) for c in zip(*table, strict=True)])


def _quantile(column: str, t: Type, q: float) -> str:
    """Quantiles of whole numbers are whole, as DuckDB shows them; text has none."""
    if t.is_integer:
        return f"CAST(round(quantile_cont({column}, {q})) AS {t})"
    if t.is_numeric:
        return f"quantile_cont({column}, {q})"
    return f"quantile_disc({column}, {q})" if t.name in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ") else "NULL"
