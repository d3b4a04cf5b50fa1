"""The Parquet files of a table whose catalog or log says its columns, its files and their partition values.

Spark's catalog (`backends/spark/table_files.py`), Delta and Iceberg make one. Its description is plain data, so tasks
open it without the catalog. A column is found in a file by its stored name or by its field id; a file that lacks it has
NULLs. Nothing is taken from the names of folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsql.backends.io import Split
from tsql.backends.io.files import Partitions
from tsql.backends.io.parquet.as_spark import unfit
from tsql.backends.io.parquet.footer import read_footer
from tsql.backends.io.parquet.sampled import open_all
from tsql.backends.io.parquet.source import ParquetFile, ParquetSource
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import Type, parse_type

OPTIONS = ("columns", "partitions", "values", "required", "complete", "as_spark")
_FIELD_ID = b"PARQUET:field_id"


def table_options(
    columns: Sequence[tuple[str, Type, str | int]],
    partitions: Sequence[str] = (),
    values: Sequence[Sequence[Any]] = (),
) -> dict[str, Any]:
    """The options of a `TableSource`. columns: name, type, and the stored name or the field id. partitions: the columns
    whose values are constant in a file; values: those of each file, in stored form."""
    return {
        "columns": [[name, str(kind), stored] for name, kind, stored in columns],
        "partitions": list(partitions),
        "values": [list(row) for row in values],
    }


class TableSource(ParquetSource):
    """Reads the listed files as the columns of a table."""

    note: str | None = None
    """What `explain` tells about the way in which the table is read."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        stated = dict(options or {})
        try:
            self.columns = {str(name): (parse_type(kind), stored) for name, kind, stored in stated["columns"]}
            self._required = {str(name) for name in stated.get("required", ())}
            names, values = list(stated["partitions"]), list(stated["values"])
            types = {name: self.columns[name][0] for name in names}
            rows = [dict(zip(names, row, strict=True)) for row in values] if names else [{} for _ in patterns]
            self._given = Partitions(types, dict(zip(patterns, rows, strict=True)))
        except (KeyError, TypeError, ValueError):
            raise SourceError("the files of a table are described in another way than they are read") from None
        super().__init__(patterns, stated)
        self.may_lack_columns = not stated.get("complete", False)
        self._as_spark = bool(stated.get("as_spark", False))

    def _listed(self) -> tuple[tuple[str, ...], Partitions]:
        return self.patterns, self._given

    def _schema(self) -> Schema:
        return Schema(tuple(Field(name, kind) for name, (kind, _) in self.columns.items()))

    def _read_file(self, path: str) -> ParquetFile:
        file = ParquetFile(read_footer(path))
        ids = field_ids(file)
        found = {}
        for name, (_, stored) in self.columns.items():
            place = ids.get(stored) if isinstance(stored, int) else file.index.get(stored.lower())
            if place is not None:
                found[name.lower()] = place
            elif name in self._required:
                raise SourceError(f"{path}: column {name}, whose value only the table's log has, is missing here")
            elif isinstance(stored, int) and not ids and name not in self.partitions.types:
                raise SourceError(
                    f"{path}: the columns of this file have no field ids, by which the table finds them",
                    hint="rewrite the files of the table, or read them with read_parquet",
                )
        file.index = found
        return file

    def checked(self) -> list[str]:
        """Why our reader would not give the rows of Spark, by the footers that are read here."""
        return [reason for reason in open_all(self._known_paths, lambda path: unfit(self, self._file(path))) if reason]

    def opened(self, split: Split, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        # Before any statistics are looked at: those of such a file may mean something else.
        checks = self._as_spark and isinstance(split.detail, list)
        reason = unfit(self, self._passed(split.file)) if checks else None
        if reason is not None:
            raise SourceError(
                f"{split.file}: Spark alone reads this table: {reason}",
                hint="register it as a DataFrame with an option: "
                "session.read.option('ignoreCorruptFiles', 'false').table(name)",
            )
        return super().opened(split, columns, filter)

    def describe(self) -> dict[str, Any]:
        return {"kind": "parquet_table", "paths": list(self.patterns), "options": dict(self.options)}

    def describe_some(self) -> dict[str, Any]:
        return {
            "kind": "parquet_table",
            "paths": [self.paths[0]],
            "options": {**self.options, "values": self.options["values"][:1]},
        }


def with_files(description: dict[str, Any], splits: Sequence[Split]) -> dict[str, Any]:
    """What `describe_some` has said, of the files of these splits too."""
    options, first = description["options"], description["paths"][0]
    found = dict(zip(description["paths"], options["values"], strict=True)) if options["values"] else {first: []}
    found |= {split.file: split.constants or [] for split in splits}
    values = list(found.values()) if options["partitions"] else []
    return {**description, "paths": list(found), "options": {**options, "values": values}}


def field_ids(file: ParquetFile) -> dict[int, int]:
    """The place of each column of a file that has a field id."""
    found = {}
    for place, field in enumerate(file.footer.schema):
        number = (field.metadata or {}).get(_FIELD_ID)
        if number is not None:
            found[int(number)] = place
    return found
