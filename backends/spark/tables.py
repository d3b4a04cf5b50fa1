"""Tables of Spark's catalogs as targets: Spark's own writer stores the rows of a lazy DataFrame.

So a write is as parallel and as transactional as the table's format makes it, whatever the format: Parquet, Hive,
Delta, Iceberg. `SparkSinks` calls this."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from typing import Any

from pyspark.errors import AnalysisException

from tsql.backends.sinks import TableTarget
from tsql.backends.spark.failures import SPARK_ERRORS, asking, telling
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.java import java_session, ticked
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.text import dotted

ATOMIC = ("delta", "iceberg", "hudi")
"""Formats that replace rows in one commit."""

_NO_REPLACE = "UNSUPPORTED_FEATURE.TABLE_OPERATION"
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_RAW_TEXTS = "spark.sql.parser.escapedStringLiterals"
_PLAIN = re.compile(r"[A-Za-z0-9 _.:-]*")


def exists(spark: Any, parts: tuple[str, ...]) -> bool:
    """Whether Spark has a table or a view of this name."""
    with asking(_refused(parts)):
        return bool(spark.catalog.tableExists(ticked(parts)))


def schema_of(spark: Any, parts: tuple[str, ...]) -> Schema | None:
    """The columns of a table; None if there is none."""
    if not exists(spark, parts):
        return None
    with asking(_refused(parts)):
        return FrameSource(spark.table(ticked(parts)), dotted(parts)).schema


def partitions_of(spark: Any, parts: tuple[str, ...]) -> list[str]:
    """The columns that a table is partitioned by."""
    with asking(_refused(parts)):
        return [column.name for column in spark.catalog.listColumns(ticked(parts)) if column.isPartition]


def save(spark: Any, frame: Any, target: TableTarget) -> int:
    """Store the rows of a DataFrame. Returns their number."""
    frame, counted = _observed(frame)
    # The job may fail too, which is no answer of the catalog.
    with telling(), asking(_refused(target.parts), (AnalysisException,)):
        if target.mode == "append":
            frame.write.insertInto(ticked(target.parts))
        elif target.mode == "overwrite":
            _overwrite(spark, frame, target)
        elif target.mode == "replace" and exists(spark, target.parts):
            _replace(spark, frame, target)
        else:
            _create(spark, frame, target, target.parts)
    return int(counted.get["rows"])


def _functions(frame: Any) -> Any:
    """The functions of columns. DataFrames of Spark Connect have their own."""
    if type(frame).__module__.startswith("pyspark.sql.connect."):
        from pyspark.sql.connect.functions import builtin

        return builtin
    from pyspark.sql import functions

    return functions


def _observed(frame: Any) -> tuple[Any, Any]:
    """The DataFrame, and what will know the number of its rows once they are stored."""
    f = _functions(frame)
    counted: Any
    if type(frame).__module__.startswith("pyspark.sql.connect."):
        from pyspark.sql.connect.observation import Observation as Remote

        counted = Remote(f"tsql-{uuid.uuid4().hex}")
    else:
        from pyspark.sql import Observation

        counted = Observation(f"tsql-{uuid.uuid4().hex}")
    return frame.observe(counted, f.count(f.lit(1)).alias("rows")), counted


def _create(spark: Any, frame: Any, target: TableTarget, parts: tuple[str, ...]) -> None:
    writer = frame.write.mode("error")
    if target.format is not None:
        writer = writer.format(target.format)
    if target.by:
        writer = writer.partitionBy(*target.by)
    try:
        writer.saveAsTable(ticked(parts))
    except BaseException:
        with suppress(*SPARK_ERRORS):
            _remove_folder(spark, parts)
        raise


def _remove_folder(spark: Any, parts: tuple[str, ...]) -> None:
    """Remove the empty folder that Spark leaves where a table of its own catalog was to be."""
    java = java_session(spark)
    if java is None or len(parts) > 3 or (len(parts) == 3 and parts[0] != "spark_catalog"):
        return
    catalog, name = (
        java.sessionState().catalog(),
        java.sessionState().sqlParser().parseTableIdentifier(ticked(parts[-2:])),
    )
    if not catalog.databaseExists(parts[-2]) or catalog.tableExists(name):
        return
    path = spark._jvm.org.apache.hadoop.fs.Path(catalog.defaultTablePath(name))
    files = path.getFileSystem(java.sessionState().newHadoopConf())
    if files.exists(path) and not len(files.listStatus(path)):
        files.delete(path, False)


def _replace(spark: Any, frame: Any, target: TableTarget) -> None:
    """Put a table in the place of another: in one step if its catalog can. Otherwise the rows are written to a table
    beside it, which then takes its name: a query that fails leaves the old table, and may read it."""
    writer = frame.writeTo(ticked(target.parts))
    if target.format is not None:
        writer = writer.using(target.format)
    if target.by:
        col = _functions(frame).col
        writer = writer.partitionedBy(*(col(ticked((name,))) for name in target.by))
    try:
        writer.createOrReplace()
        return
    except AnalysisException as error:
        if error.getCondition() != _NO_REPLACE:
            raise
    beside, aside = ((*target.parts[:-1], f"tsql_{uuid.uuid4().hex}") for _ in range(2))
    try:
        _create(spark, frame, target, beside)
        _rename(spark, target.parts, aside)
        try:
            _rename(spark, beside, target.parts)
        except BaseException:
            _rename(spark, aside, target.parts)
            raise
        spark.sql(f"DROP TABLE {ticked(aside)}")
    except BaseException:
        spark.sql(f"DROP TABLE IF EXISTS {ticked(beside)}")
        raise


def _overwrite(spark: Any, frame: Any, target: TableTarget) -> None:
    """Put rows in the place of those of a table, or of some of its partitions. Where the format does that in one step,
    Spark's writer gets the rows. Elsewhere it removes the old files before the first task runs: then the query first
    fills a table beside this one, so that it may fail, and may read the table."""
    by = partitions_of(spark, target.parts)
    is_dynamic = str(spark.conf.get(_OVERWRITE_MODE)).lower() == "dynamic" and len(target.static) < len(by)
    if is_dynamic or _provider(spark, target.parts) in ATOMIC:
        _insert_over(spark, frame, target, by)
        return
    if len(target.parts) == 3 and target.parts[0] != "spark_catalog":
        kept = frame.persist()  # a catalog of its own may have no place for a table of files
        try:
            kept.count()
            _insert_over(spark, kept, target, by)
        finally:
            kept.unpersist()
        return
    beside = (*target.parts[:-1], f"tsql_{uuid.uuid4().hex}")
    try:
        # Of the same types: a text that is too long for CHAR(n) must not be found later.
        spark.sql(f"CREATE TABLE {ticked(beside)} LIKE {ticked(target.parts)}")
        frame.write.insertInto(ticked(beside))
        _insert_over(spark, spark.table(ticked(beside)), target, by)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {ticked(beside)}")


def _provider(spark: Any, parts: tuple[str, ...]) -> str:
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {ticked(parts)}").collect()
    names = [row[0] for row in rows]
    place = names.index("# Detailed Table Information") if "# Detailed Table Information" in names else len(names)
    return next((str(row[1]).lower() for row in rows[place:] if row[0] == "Provider"), "")


def _insert_over(spark: Any, frame: Any, target: TableTarget, by: list[str]) -> None:
    if not target.static:
        frame.write.insertInto(ticked(target.parts), overwrite=True)
        return
    values = dict(target.static)
    names = spark.table(ticked(target.parts)).columns
    given = frame.toDF(*names).drop(*values)
    partition = ", ".join(
        ticked((name,)) + (f" = {_value(spark, values[name])}" if name in values else "") for name in by
    )
    view = f"tsql_{uuid.uuid4().hex}"
    given.createOrReplaceTempView(view)
    try:
        spark.sql(f"INSERT OVERWRITE TABLE {ticked(target.parts)} PARTITION ({partition}) SELECT * FROM {view}")
    finally:
        spark.catalog.dropTempView(view)


def _value(spark: Any, value: Any) -> str:
    """A partition value in Spark's SQL. A text is written so that no character of it ends the text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int):
        return str(value).lower()
    text = str(value)
    if not _PLAIN.fullmatch(text) and str(spark.conf.get(_RAW_TEXTS, "false")).lower() == "true":
        raise CatalogError(f"the partition value {text!r} cannot be written with {_RAW_TEXTS}=true")
    return "'" + "".join(c if _PLAIN.fullmatch(c) else f"\\U{ord(c):08x}" for c in text) + "'"


def _rename(spark: Any, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Rename a table within its catalog. Spark takes the new name without the catalog, and its own catalog in memory
    leaves the partitions where the folder was."""
    spark.sql(f"ALTER TABLE {ticked(old)} RENAME TO {ticked(new[1:] if len(new) > 2 else new)}")
    if (len(new) < 3 or new[0] == "spark_catalog") and partitions_of(spark, new):
        # Spark's catalog in memory moves the folder, and takes the partitions to be where they were: their rows would
        # be missing, and DROP TABLE would remove the folders that another table has there by then.
        spark.sql(f"MSCK REPAIR TABLE {ticked(new)} SYNC PARTITIONS")


def drop(spark: Any, parts: tuple[str, ...]) -> None:
    """Drop a table that is there."""
    with asking(_refused(parts)):
        spark.sql(f"DROP TABLE {ticked(parts)}")


def _refused(parts: tuple[str, ...]) -> str:
    return f"Spark refuses {dotted(parts)}"
