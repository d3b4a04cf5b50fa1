"""Kinds of files: each is one row of `KINDS`, from which all that names them is derived.

`open` finds the kind of a file and its source here, `files` the endings, the analyzer its table functions, the shell
what it completes, CREATE STREAM its connectors. A source is named as text and imported when a file of its kind is
opened; this module imports nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class FileKind:
    """`module` has the class `source`, made of patterns and options, and `OPTIONS`, the names of its options.

    `endings` of names tell the kind, or else `first_bytes`, behind any of the bytes in `skipped`. `aliases` are other
    names of it (COPY .. (FORMAT ndjson)), `functions` its table functions besides `read_<name>`, `connectors` what
    CREATE STREAM calls it. `has_file_columns`: the options and the columns of `partitioned` are added to the source.
    """

    module: str
    source: str
    endings: tuple[str, ...] = ()
    first_bytes: tuple[bytes, ...] = ()
    skipped: bytes = b""
    aliases: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    connectors: tuple[str, ...] = ()
    has_file_columns: bool = True
    has_function: bool = True
    """Whether queries name it. Others are what a kind turns into: the files of a table's snapshot."""

    def load(self) -> Any:
        """The module of the source."""
        name = f"tsql.backends.io.{self.module}"
        __import__(name)
        return sys.modules[name]

    def starts(self, head: bytes) -> bool:
        """Whether the first bytes of a file are those of this kind."""
        return head.lstrip(self.skipped).startswith(self.first_bytes)


KINDS = {
    "parquet": FileKind(
        "parquet.source",
        "ParquetSource",
        endings=(".parquet", ".pq", ".parq"),
        first_bytes=(b"PAR1",),
        aliases=("pq",),
        functions=("parquet_scan",),
        connectors=("parquet",),
        has_file_columns=False,  # it adds them itself: it prunes by them
    ),
    "csv": FileKind(
        "csv.source",
        "CsvSource",
        endings=(".csv", ".tsv", ".tbl", ".psv", ".txt"),
        aliases=("tsv",),
        functions=("read_csv_auto",),
        connectors=("csv",),
    ),
    "json": FileKind(
        "json.source",
        "JsonSource",
        endings=(".json", ".ndjson", ".jsonl"),
        first_bytes=(b"{", b"["),
        skipped=b"\xef\xbb\xbf \t\r\n",
        aliases=("ndjson", "jsonl"),
        functions=("read_json_auto", "read_ndjson", "read_ndjson_auto"),
        connectors=("json", "ndjson"),
    ),
    "ipc": FileKind(
        "ipc",
        "IpcSource",
        endings=(".arrow", ".arrows", ".feather", ".ipc"),
        first_bytes=(b"ARROW1", b"\xff\xff\xff\xff"),
        aliases=("arrow", "feather"),
        functions=("read_arrow",),
        connectors=("arrow",),
    ),
    "delta": FileKind("delta", "delta_source", functions=("delta_scan",), has_file_columns=False),
    "iceberg": FileKind("iceberg", "iceberg_source", functions=("iceberg_scan",), has_file_columns=False),
    "parquet_table": FileKind("parquet.table", "TableSource", has_file_columns=False, has_function=False),
    "text": FileKind("whole", "TextSource", has_file_columns=False),
    "blob": FileKind("whole", "BlobSource", has_file_columns=False),
}
ALIASES = {alias: name for name, kind in KINDS.items() for alias in kind.aliases}
FILE_FUNCTIONS = {
    function: name
    for name, kind in KINDS.items()
    if kind.has_function
    for function in (f"read_{name}", *kind.functions)
}
NAMED_KINDS = tuple(name for name, kind in KINDS.items() if kind.has_function)
CONNECTORS = tuple(connector for kind in KINDS.values() for connector in kind.connectors)
