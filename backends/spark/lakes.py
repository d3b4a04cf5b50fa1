"""Delta and Iceberg tables of a Spark session: by their snapshot's list of files where our reader reads them, and as
Spark's DataFrame where it does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tsql.backends.io.open import open_source
from tsql.backends.io.snapshot import OtherReader
from tsql.backends.names import FoundTable, NeverKept
from tsql.backends.spark import storage
from tsql.backends.spark.failures import SPARK_ERRORS
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.java import class_of, java_session, named, ticked
from tsql.planner.physical.text import dotted

ICEBERG = "org.apache.iceberg.spark.source.SparkTable"


Place = tuple[str, str]
"""The kind of a table in a lake, and its path."""


def find(
    session: SparkSession, parts: tuple[str, ...], ask: Callable[[SparkSession, tuple[str, ...]], Place | None]
) -> FoundTable | str | None:
    """The snapshot of a table in Spark's catalog; why our reader does not read it; None if it is none that `ask` (one
    of `delta` and `iceberg`) knows."""
    place = None
    with suppress(*SPARK_ERRORS):  # a catalog may say nothing of this
        place = ask(session, parts)
    if place is None:
        return None
    kind, path = place
    try:
        storage.remember(session, [path])
        source: Any = open_source(path, kind)
        if hasattr(source, "read_in_tasks"):
            source.read_in_tasks()
    except OtherReader as reason:
        return reason.message
    source.note = f"{dotted(parts)}: {source.note}"
    named(source, parts)
    return FoundTable(source, NeverKept())


def delta(session: SparkSession, parts: tuple[str, ...]) -> Place | None:
    """Where a Delta table of the session's own catalog is."""
    java = java_session(session)
    catalog = parts[0] if len(parts) == 3 else session.catalog.currentCatalog() if java is not None else ""
    if java is None or len(parts) > 3 or catalog != "spark_catalog":
        return None
    state = java.sessionState()
    name = state.sqlParser().parseTableIdentifier(ticked(parts[-2:]))
    if state.catalog().isTempView(name) or not state.catalog().tableExists(name):
        return None
    table = state.catalog().getTableMetadata(name)
    provider = table.provider()
    if provider.isEmpty() or str(provider.get()).lower() != "delta":
        return None
    return "delta", str(table.location().toString())


def iceberg(session: SparkSession, parts: tuple[str, ...]) -> Place | None:
    """The metadata file of an Iceberg table, which Spark knows by a catalog of Iceberg's."""
    java = java_session(session)
    if java is None or not _has_class(session, ICEBERG):
        return None
    plan: Any = session.table(ticked(parts))
    return metadata_file(plan._jdf.queryExecution().optimizedPlan())


def metadata_file(plan: Any) -> Place | None:
    """The metadata file of a plan that is nothing but an Iceberg table."""
    if class_of(plan) not in ("DataSourceV2Relation", "DataSourceV2ScanRelation"):
        return None
    relation = plan.relation() if class_of(plan) == "DataSourceV2ScanRelation" else plan
    if class_of(relation.table()) != "SparkTable":
        return None
    return "iceberg", str(relation.table().table().operations().current().metadataFileLocation())


@lru_cache(16)
def _has_class(session: SparkSession, name: str) -> bool:
    jvm: Any = session._jvm
    with suppress(Py4JError):
        return jvm.java.lang.Class.forName(name) is not None
    return False


def scan(session: SparkSession, kind: str, path: str | tuple[str, ...], options: dict[str, Any]) -> FoundTable | None:
    """A table by its path as Spark's DataFrame; None if Spark does not read it either."""
    if kind not in ("delta", "iceberg") or not isinstance(path, str):
        return None
    words = {
        "delta": {"version": "versionAsOf", "timestamp": "timestampAsOf"},
        "iceberg": {"snapshot_id": "snapshot-id", "timestamp": "as-of-timestamp"},
    }[kind]
    if any(name not in words for name in options):
        return None
    with suppress(*SPARK_ERRORS):  # the error of our own reader says what is wrong
        reader = session.read.format(kind)
        for name, value in options.items():
            reader = reader.option(words[name], str(value))
        source = FrameSource(reader.load(path), path)
        source.way = f"{path}: a DataFrame of Spark: our reader does not read this {kind.capitalize()} table"
        return FoundTable(source, NeverKept())
    return None
