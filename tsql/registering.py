"""Registers and reads data for Python code: data with a time and a period, streams over files, and files. Called by
`Session.register`, `Session.stream`, `Session.read_parquet` and the like."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsql.arguments import checked_path, checked_text, optional_text
from tsql.backends.io import Source
from tsql.catalog import catalog
from tsql.catalog.external import Connection, External, checked_period, checked_time
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.types import Type
from tsql.parameters import literal
from tsql.relation import Relation

if TYPE_CHECKING:
    from tsql.backends.io.watermark import Watermark

Length = str | dt.timedelta
"""A length of time: timedelta(seconds=5), or a text such as "5 seconds"."""

Path = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def is_path(data: Any) -> bool:
    """Whether something names files: a path, or a list of paths."""
    return isinstance(data, str | os.PathLike) or (
        isinstance(data, list | tuple) and bool(data) and all(isinstance(one, str | os.PathLike) for one in data)
    )


def as_source(name: str, data: Any) -> Source:
    """Data under a name, as a scan reads it. A relation over one whole table or file stays lazy, any other is computed
    now. A Spark DataFrame is read by its cluster."""
    if isinstance(data, Relation):
        data = data.source if data.source is not None else data.arrow()
    elif type(data).__module__.startswith("pyspark."):
        from tsql.backends.spark.backend import source_of

        data = source_of(data, name) or data
    return catalog.as_source(name, data)


def checked_files(path: Path) -> str | list[str]:
    """A path or a pattern as text, or a list of them."""
    if isinstance(path, Sequence) and not isinstance(path, str | bytes):
        return [checked_path(one, "the name of a file") for one in path]
    return checked_path(path, "the name of a file")


def read_text(path: str | list[str], kind: str, options: Mapping[str, Any]) -> str:
    """The query that reads files of one kind."""
    arguments = [literal(path), *(f"{name} => {literal(value)}" for name, value in options.items())]
    return f"FROM read_{kind}({', '.join(arguments)})"


def timed(source: Source, time: str | None, period: tuple[str, str] | None) -> External | Source:
    """Data in memory as an entry of the catalog that knows the time of its rows."""
    kind = "stream" if getattr(source, "goes_on", False) else "table"
    if time is None and period is None and kind == "table":
        return source
    return External(
        kind,
        source.schema,
        None,
        source,
        _period(source, period),
        None if time is None else _watermark(source, time, None),
        True,
    )


def stream_over(
    source: Source, time: str, period: tuple[str, str] | None, watermark: str | None, lateness: Mapping[str, Any]
) -> External:
    """Data in memory as a stream."""
    if lateness.get("late_table") is not None:
        raise CatalogError(
            "late rows of data in memory cannot go into a table", hint='on_late is "drop", "adjust" or "error"'
        )
    mark = _watermark(source, time, watermark, **_parts(lateness))
    return External("stream", source.schema, None, source, _period(source, period), mark, True)


def goes_on(data: Any) -> bool:
    """Whether data is a function or an iterator that gives one table after another, and not a table itself."""
    is_table = any(hasattr(data, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "schema", "columns"))
    return not isinstance(data, type) and not is_table and (callable(data) or hasattr(data, "__next__"))


def stream_of_python(
    name: str,
    data: Any,
    columns: Mapping[str, str | Type] | None,
    time: str,
    period: tuple[str, str] | None,
    watermark: str | None,
    lateness: Mapping[str, Any],
) -> External:
    """A stream whose rows a function or an iterator gives, while a job asks for them."""
    from tsql.kernels.expr.schema import Field, Schema
    from tsql.kernels.expr.types import parse_type

    if columns is None:
        raise CatalogError(
            f"the columns of {name} are not known before its rows come", hint="columns={'id': 'BIGINT', ..}"
        )
    kinds = {column: parse_type(kind) if isinstance(kind, str) else kind for column, kind in columns.items()}
    schema = Schema(tuple(Field(column, kind) for column, kind in kinds.items()))
    empty = catalog.as_source(name, schema.to_arrow().empty_table())
    mark = _watermark(empty, time, watermark, **_parts(lateness))
    return External(
        "stream", schema, None, None, _period(empty, period), mark, True, Connection("python", {"data": data})
    )


def stream_text(
    name: str,
    path: Path | None,
    connector: str | None,
    columns: Mapping[str, str | Type] | None,
    time: str,
    period: tuple[str, str] | None,
    watermark: str | None,
    lateness: Mapping[str, Any],
    options: Mapping[str, Any],
) -> str:
    """The CREATE STREAM that `Session.stream` says in Python."""
    from tsql.grammar.time.intervals import shown

    parts = _parts(lateness)
    time, watermark = checked_text(time, "time (the name of a column)"), optional_text(watermark, "a watermark")
    clause = f"WATERMARK FOR {quote(time)} AS {watermark or quote(time)}"
    clause += f" IDLE TIMEOUT {shown(parts['idle_timeout_us'])}" if parts["idle_timeout_us"] is not None else ""
    clause += f" ALLOWED LATENESS {shown(parts['allowed_lateness_us'])}" if parts["allowed_lateness_us"] else ""
    clause += f" ON LATE {parts['on_late']}" + (f" {quote(parts['into'])}" if parts["into"] is not None else "")
    inside = [f"{quote(column)} {kind}" for column, kind in (columns or {}).items()] + [clause]
    inside += [f"PERIOD FOR valid_time ({', '.join(map(quote, period))})"] if period is not None else []
    stated: dict[str, Any] = {} if connector is None else {"connector": connector}
    if path is not None:
        stated["path"] = (
            os.fspath(path) if isinstance(path, str | os.PathLike) else ", ".join(os.fspath(one) for one in path)
        )
    elif connector is None:
        raise CatalogError(f"the stream {name} needs data, or a connector", hint="stream(name, connector='kafka', ..)")
    stated |= options
    return (
        f"CREATE OR REPLACE STREAM {quote(name)} ({', '.join(inside)}) WITH "
        f"({', '.join(f'{key} = {literal(value)}' for key, value in stated.items())})"
    )


def _period(source: Source, period: tuple[str, str] | None) -> tuple[str, str] | None:
    if period is None:
        return None
    if (
        not isinstance(period, list | tuple)
        or len(period) != 2
        or not all(isinstance(column, str) for column in period)
    ):
        raise CatalogError(f"a period is a pair of columns, the start and the end, not {period!r}")
    return checked_period(source.schema, *period)


def _watermark(source: Source, time: str, text: str | None, **parts: Any) -> Watermark:
    from tsql.backends.io.watermark import Watermark
    from tsql.planner.bind.binder import parse_expression

    column = checked_time(source.schema, checked_text(time, "time (the name of a column)"))
    text = quote(column.name) if text is None else checked_text(text, "a watermark")
    bound = parse_expression(text, source.schema)
    if not bound.type.is_temporal or bound.type.name == "TIME":
        raise CatalogError(
            f"the watermark is {bound.type}: it must be a time, such as {column.name} - INTERVAL '5 seconds'"
        )
    return Watermark(column.name, text, bound, **parts)


def _parts(lateness: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments about late rows as fields of a `Watermark`."""
    from tsql.backends.io.watermark import POLICIES

    policy, table = str(lateness.get("on_late") or "drop").upper(), lateness.get("late_table")
    if policy not in POLICIES or (policy == "INTO") != (table is not None):
        raise CatalogError(
            f'on_late is "drop", "adjust", "error", or "into" with late_table=, not {lateness.get("on_late")!r}'
        )
    idle = lateness.get("idle_timeout")
    return {
        "idle_timeout_us": None if idle is None else _length(idle, "idle_timeout"),
        "allowed_lateness_us": _length(lateness.get("allowed_lateness") or dt.timedelta(), "allowed_lateness"),
        "on_late": policy,
        "into": table,
    }


def _length(value: Length, what: str) -> int:
    from tsql.grammar.time.intervals import length_us
    from tsql.planner.bind.fold import parse_interval

    if isinstance(value, dt.timedelta):
        found: int | None = value // dt.timedelta(microseconds=1)
    else:
        parts = parse_interval(value) if isinstance(value, str) else None
        found = None if parts is None or parts[0] else length_us(parts)
    if found is None or found < 0:
        raise CatalogError(f'{what} is a timedelta or a text such as "5 seconds", not {value!r}')
    return found
