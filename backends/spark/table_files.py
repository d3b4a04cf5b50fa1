"""The files of a Spark table that is nothing but a scan of Parquet files, so that our own scan can read them.

Spark lists the files and says the partition values (`listed`). Where our reader would not give the rows that Spark
gives, `OtherWay` says why, and the table is read as a DataFrame."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from tsql.backends.io import Source, remote
from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.parquet.table import TableSource, table_options
from tsql.backends.io.text import parse_date
from tsql.backends.spark import storage
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.java import class_of, java_session, to_json
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
PADDED = "__CHAR_VARCHAR_TYPE_STRING"
DEFAULT = "EXISTS_DEFAULT"
FIELD_ID = "parquet.field.id"
REFUSED = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "legacy",
    "spark.sql.parquet.int96RebaseModeInRead": "legacy",
}
"""Settings with which Spark reads files in a way that is its own."""
REFUSED_OPTIONS = ("ignorecorruptfiles", "ignoremissingfiles", "datetimerebasemode", "int96rebasemode")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NOT_ASCII = re.compile(r"%[89A-Fa-f]")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class OtherWay(Exception):
    """Why a table is read as a DataFrame."""


@dataclass(frozen=True)
class TableFiles:
    """The files of a table as Spark lists them, and the options of the source that reads them."""

    paths: tuple[str, ...]
    options: dict[str, Any]

    def fingerprint(self) -> tuple[Any, ...] | None:
        """The files, their sizes and times of change, and what the table says of them; None for files elsewhere."""
        if any(map(remote.is_remote, self.paths)):
            return None
        return json.dumps(self.options), tuple(_stat(path) for path in self.paths)


def _stat(path: str) -> tuple[Any, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return (path,)
    return path, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def listed(frame: DataFrame, schema: Schema) -> TableFiles:
    """The files behind a DataFrame whose columns are `schema`. Raises `OtherWay`."""
    session = frame.sparkSession
    if java_session(session) is None:
        raise OtherWay("a session of Spark Connect does not tell its files")
    for name, value in REFUSED.items():
        if str(session.conf.get(name, None)).lower() == value:
            raise OtherWay(f"the session has {name}={value}")
    if list(schema.names) != frame.columns:
        raise OtherWay("two of its columns have the same name")
    plan = frame._jdf.queryExecution().optimizedPlan()
    renamed: list[str] | None = None
    if class_of(plan) == "Project":
        renamed, plan = _renamed(plan), plan.child()
    if class_of(plan) != "LogicalRelation" or class_of(plan.relation()) != "HadoopFsRelation":
        raise OtherWay(f"its plan is {plan.nodeName()}, and no scan of files alone")
    relation = plan.relation()
    if class_of(relation.fileFormat()) != "ParquetFileFormat":
        raise OtherWay(f"its files are of the format {relation.fileFormat().toString()}, not Parquet")
    odd = [key for key in json.loads(to_json(session, relation.options())) if key.lower() in REFUSED_OPTIONS]
    if odd:
        raise OtherWay(f"it has the option {odd[0]}")
    by = StructType.fromJson(json.loads(relation.partitionSchema().json()))
    _check_fields(StructType.fromJson(json.loads(relation.dataSchema().json())).fields)
    stored = frame.columns if renamed is None else renamed
    types = {name: schema[shown].type for shown, name in zip(frame.columns, stored, strict=True)}
    keys = [field.name for field in by.fields if field.name in types]
    if len(keys) != len(by.fields) and renamed is None:
        raise OtherWay("its partition columns are not among its columns")
    files = json.loads(to_json(session, relation.location().inputFiles()))
    paths = tuple(map(_local, files))
    storage.remember(session, paths)
    texts = _partition_texts(session, plan, relation.location(), paths, by.names)
    places = [by.names.index(key) for key in keys]
    values = [[_value(types[key], row[i]) for key, i in zip(keys, places, strict=True)] for row in texts]
    shown = dict(zip(stored, frame.columns, strict=True))
    columns = [(shown[name], types[name], name) for name in stored if types[name].is_readable]
    options = table_options(columns, [shown[key] for key in keys], values if keys else ())
    return TableFiles(paths, {**options, "as_spark": True})


def _renamed(plan: Any) -> list[str]:
    """The stored names of the columns of a projection that computes nothing."""
    stored = {}
    outputs = plan.child().output()
    for place in range(outputs.size()):
        stored[str(outputs.apply(place).exprId())] = outputs.apply(place).name()
    found, items = [], plan.projectList()
    for place in range(items.size()):
        item = items.apply(place)
        inner = item.child() if class_of(item) == "Alias" else item
        if class_of(inner) != "AttributeReference" or str(inner.exprId()) not in stored:
            raise OtherWay(f"it computes {item.name()}")
        found.append(str(stored[str(inner.exprId())]))
    if len(set(found)) != len(found):
        raise OtherWay("it has a column twice")
    return found


def _check_fields(fields: list[StructField]) -> None:
    for field in fields:
        about: Mapping[str, Any] = field.metadata or {}
        if DEFAULT in about:
            raise OtherWay(f"column {field.name} has a default for rows that were there before it")
        if FIELD_ID in about:
            raise OtherWay(f"column {field.name} is found by its field id")
        if str(about.get(PADDED, "")).startswith("char"):
            raise OtherWay(f"column {field.name} is {about[PADDED]}, which Spark pads")


def _local(url: str) -> str:
    """The path of a file as our reader takes it."""
    if remote.scheme_of(url) == "file":
        return remote.plain(url)
    if not remote.is_remote(url):
        raise OtherWay(f"its files are at {remote.scheme_of(url)}://")
    return unquote(url)


def _partition_texts(
    session: SparkSession, plan: Any, location: Any, paths: tuple[str, ...], names: list[str]
) -> list[list[str | None]]:
    """The partition values of each file, as text. Spark's catalog knows them, or the names of the folders say them."""
    if not names:
        return [[] for _ in paths]
    kind = class_of(location)
    if kind == "CatalogFileIndex":
        table = plan.catalogTable().get().identifier()
        jvm: Any = session._jvm
        catalog = java_session(session).sessionState().catalog()
        found = json.loads(to_json(session, catalog.listPartitions(table, jvm.scala.Option.empty())))
        folders = {_folder(one["storage"]["locationUri"]): one["spec"] for one in found}
        if any(os.path.dirname(path) not in folders for path in paths):
            raise OtherWay("a file of it is in no folder of a partition")
        return [[_text(folders[os.path.dirname(path)].get(name)) for name in names] for path in paths]
    if kind != "InMemoryFileIndex":
        raise OtherWay(f"its files are listed by {kind}")
    return [_folder_texts(path, names) for path in paths]


def _folder(url: str | None) -> str:
    return _local(url or "").rstrip("/")


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not value:
        raise OtherWay("a partition has no value")
    return None if value == NO_VALUE else value


def _folder_texts(path: str, names: list[str]) -> list[str | None]:
    folders = path.split("/")[:-1][-len(names) :]
    pairs = [folder.partition("=") for folder in folders]
    if [unquote(key) for key, _, _ in pairs] != names:
        raise OtherWay("the folders of its files are not named after its partitions")
    if any(_NOT_ASCII.search(text) for _, _, text in pairs):
        raise OtherWay("the name of a folder of it escapes more than ASCII")
    return [None if text == NO_VALUE else _text(unquote(text)) for _, _, text in pairs]


def _value(kind: Type, text: str | None) -> Any:
    """A partition value in stored form. Only what has one meaning is taken: Spark casts more than that."""
    if text is None:
        return None
    if kind.name == "VARCHAR":
        return text
    if kind.is_integer and kind.name != "HUGEINT" and _INTEGER.fullmatch(text):
        low, high = kind.bounds
        if low <= int(text) <= high:
            return int(text)
    if kind.name == "DATE" and _DATE.fullmatch(text) and parse_date(text) is not None:
        return parse_date(text)
    if kind.name == "BOOLEAN" and text in ("true", "false"):
        return text == "true"
    raise OtherWay(f"a partition value is {text!r}, of a column of type {kind}")


def counted(files: int) -> str:
    return "1 Parquet file" if files == 1 else f"{files} Parquet files"


def opened(files: TableFiles, frame: FrameSource) -> Source:
    """The source that reads the files. Raises `OtherWay` if a file holds what Spark alone reads."""
    if not files.paths:
        source: Any = ArrowSource(frame.empty(), frame.name)
        source.note = f"{frame.name}: a table of Spark without files"
        return source
    table = TableSource(files.paths, files.options)
    table.read_in_tasks()
    try:
        # Of very many files, the other ones are checked where they are read.
        reasons = table.checked()
    except SourceError as error:
        if "encrypted" in error.message:
            raise OtherWay("its files are encrypted") from error
        raise
    if reasons:
        raise OtherWay(reasons[0])
    table.schema = frame.schema  # with the columns that cannot be read
    table.note = f"{frame.name}: {counted(len(table.paths))} of Spark, read by tsql"
    return table
