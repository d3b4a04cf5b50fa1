"""Tables and streams whose rows are elsewhere: in files that are read by each query, or in memory that Python code has
registered.

`External` is an entry of the catalog like `Table` and `View`. Its columns are fixed when it is created; files that are
added later are read with these columns. Temporal queries ask any entry for `period` and `event_time`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tsql.backends.io import Source
from tsql.backends.io.kinds import KINDS
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import parse_type
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.backends.io.watermark import Watermark

TIMES = ("TIMESTAMP", "TIMESTAMPTZ", "DATE")
"""Types that a period or an event time may have."""


SINK = "sink"
"""The `kind` of an entry that jobs write to. It has no columns."""


@dataclass(frozen=True)
class Files:
    """What WITH (connector = .., path = .., ..) says: the kind of files, where they are, and the options of their
    reader."""

    kind: str
    paths: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def connector(self) -> str:
        return next(iter(KINDS[self.kind].connectors), self.kind) if self.kind in KINDS else self.kind


@dataclass(frozen=True)
class Connection:
    """Where a job reads a stream that does not end: the connector and its options, as WITH (..) says."""

    connector: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class External:
    """A stream (`kind` is "stream") or a table over `files`, or over `data` in memory, or a sink. A stream with a
    `connection` does not end: jobs read it, and queries the files that are there now, if it is over files. `temporary`:
    never written to disk."""

    kind: str
    schema: Schema
    files: Files | None = None
    data: Source | None = field(default=None, compare=False)
    period: tuple[str, str] | None = None
    watermark: Watermark | None = None
    temporary: bool = False
    connection: Connection | None = None

    @property
    def event_time(self) -> str | None:
        """The column with the time of a row; None if it has none."""
        return None if self.watermark is None else self.watermark.column

    def options(self) -> dict[str, Any]:
        """The options with which the files are opened: those that were given, and the columns."""
        assert self.files is not None
        return {**self.files.options, "schema": {column.name: str(column.type) for column in self.schema}}

    def create_text(self, name: str) -> str:
        """The statement that makes it."""
        parts = [f"{quote(column.name)} {column.type}" for column in self.schema]
        parts += [watermark_text(self.watermark)] if self.watermark is not None and self.kind == "stream" else []
        parts += [f"PERIOD FOR valid_time ({', '.join(map(quote, self.period))})"] if self.period is not None else []
        text = f"CREATE {self.kind.upper()} {quote(name)}" + (f" ({', '.join(parts)})" if parts else "")
        if self.connection is not None:
            plain = {name: value for name, value in self.connection.options.items() if isinstance(value, _PLAIN)}
            options: dict[str, Any] = {"connector": self.connection.connector, **plain}
        elif self.files is None:
            return text
        else:
            options = {
                "connector": self.files.connector,
                "path": ", ".join(self.files.paths),
                **self.files.options,
            }
        return f"{text} WITH ({', '.join(f'{key} = {_value(value)}' for key, value in options.items())})"

    def to_json(self) -> dict[str, Any]:
        assert self.files is not None or self.connection is not None
        found: dict[str, Any] = {
            "kind": self.kind,
            "columns": [[column.name, str(column.type)] for column in self.schema],
        }
        if self.files is not None:
            found["files"] = [self.files.kind, list(self.files.paths), dict(self.files.options)]
        if self.connection is not None:
            found["connection"] = [self.connection.connector, dict(self.connection.options)]
        if self.period is not None:
            found["period"] = list(self.period)
        if self.watermark is not None:
            mark = self.watermark
            found["watermark"] = [
                mark.column,
                mark.text,
                mark.idle_timeout_us,
                mark.allowed_lateness_us,
                mark.on_late,
                mark.into,
            ]
        return found

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> External:
        schema = Schema(tuple(Field(name, parse_type(kind)) for name, kind in data["columns"]))
        files = connection = None
        if data.get("files") is not None:
            kind, paths, options = data["files"]
            files = Files(kind, tuple(paths), options)
        if data.get("connection") is not None:
            connection = Connection(*data["connection"])
        watermark = None
        if data.get("watermark") is not None:
            from tsql.backends.io.watermark import Watermark
            from tsql.planner.bind.binder import parse_expression

            column, text, *rest = data["watermark"]
            watermark = Watermark(column, text, parse_expression(text, schema), *rest)
        period = None if data.get("period") is None else tuple(data["period"])
        return External(data["kind"], schema, files, None, period, watermark, connection=connection)


_PLAIN = (str, int, float, bool)
"""Types of options that a statement can say; a Python object has no text."""


def watermark_text(mark: Watermark) -> str:
    """The clause as it is written in CREATE STREAM."""
    from tsql.backends.io.watermark import DROP
    from tsql.grammar.time.intervals import shown

    text = f"WATERMARK FOR {quote(mark.column)} AS {mark.text}"
    text += f" IDLE TIMEOUT {shown(mark.idle_timeout_us)}" if mark.idle_timeout_us is not None else ""
    text += f" ALLOWED LATENESS {shown(mark.allowed_lateness_us)}" if mark.allowed_lateness_us else ""
    return text + (
        "" if mark.on_late == DROP else f" ON LATE {mark.on_late}{'' if mark.into is None else f' {quote(mark.into)}'}"
    )


def _value(value: Any) -> str:
    return (
        ("TRUE" if value else "FALSE")
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, int | float)
        else "'" + str(value).replace("'", "''") + "'"
    )


def checked_period(schema: Schema, start: str, end: str) -> tuple[str, str]:
    """The columns of a period as they are spelled, once they are known to be two times of one type."""
    first, last = (find(schema, name, "PERIOD FOR") for name in (start, end))
    for column in (first, last):
        if column.type.name not in TIMES:
            raise CatalogError(
                f'column "{column.name}" is {column.type}: a period is between columns of type TIMESTAMP, '
                "TIMESTAMPTZ or DATE"
            )
    if first.type != last.type:
        raise CatalogError(
            f'the columns of a period have one type: "{first.name}" is {first.type}, "{last.name}" is {last.type}'
        )
    if first.name == last.name:
        raise CatalogError(f'a period is between two columns, not from "{first.name}" to itself')
    return first.name, last.name


def checked_time(schema: Schema, name: str) -> Field:
    """The column with the time of a row, once it is known to be one."""
    column = find(schema, name, "the time of a row")
    if column.type.name not in TIMES:
        raise CatalogError(
            f'column "{column.name}" is {column.type}: the time of a row is TIMESTAMP, TIMESTAMPTZ or DATE',
            hint=f'CAST("{column.name}" AS TIMESTAMP) in a view makes it one',
        )
    return column


def find(schema: Schema, name: str, what: str) -> Field:
    """A column by name, without regard to case."""
    found = next((column for column in schema if column.name.lower() == name.lower()), None)
    if found is None:
        raise CatalogError(f'{what}: there is no column "{name}"', hint=f"columns are {', '.join(schema.names)}")
    return found


def paths_of(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The paths in an option: a list of them, or one text. Commas in a text separate paths unless a file has that exact
    name."""
    if not isinstance(path, str | os.PathLike):
        return tuple(os.fspath(one) for one in path)
    text = os.fspath(path)
    parts = [part.strip() for part in text.split(",")]
    return (text,) if len(parts) == 1 or os.path.exists(text) or not all(parts) else tuple(parts)
