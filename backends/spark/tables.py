"""Tables of Spark's catalogs as targets: Spark's own writer stores the rows of a lazy DataFrame.

So a write is as parallel and as transactional as the table's format makes it, whatever the format: Parquet, Hive,
Delta, Iceberg. `SparkSinks` calls this."""

from __future__ import annotations

import uuid
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Observation
from pyspark.sql.functions import count, lit

from tsql.backends.sinks import TableTarget
from tsql.backends.spark.failures import translated
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.java import ticked
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.text import dotted

_NO_REPLACE = "UNSUPPORTED_FEATURE.TABLE_OPERATION"


def exists(spark: Any, parts: tuple[str, ...]) -> bool:
    """Whether Spark has a table or a view of this name."""
    try:
        return bool(spark.catalog.tableExists(ticked(parts)))
    except (PySparkException, Py4JError) as error:
        raise _refused(parts, error) from error


def schema_of(spark: Any, parts: tuple[str, ...]) -> Schema | None:
    """The columns of a table; None if there is none."""
    if not exists(spark, parts):
        return None
    try:
        return FrameSource(spark.table(ticked(parts)), dotted(parts)).schema
    except (PySparkException, Py4JError) as error:
        raise _refused(parts, error) from error


def save(spark: Any, frame: Any, target: TableTarget) -> int:
    """Store the rows of a DataFrame. Returns their number."""
    counted = Observation(f"tsql-{uuid.uuid4().hex}")
    frame = frame.observe(counted, count(lit(1)).alias("rows"))
    try:
        if target.mode == "append":
            frame.write.insertInto(ticked(target.parts))
        elif target.mode == "replace" and exists(spark, target.parts):
            _replace(spark, frame, target)
        else:
            _create(frame, target, target.parts)
    except AnalysisException as error:
        raise _refused(target.parts, error) from error
    except (PySparkException, Py4JError) as error:
        raise translated(error) from error
    return int(counted.get["rows"])


def _create(frame: Any, target: TableTarget, parts: tuple[str, ...]) -> None:
    writer = frame.write.mode("errorifexists")
    if target.format is not None:
        writer = writer.format(target.format)
    if target.by:
        writer = writer.partitionBy(*target.by)
    writer.saveAsTable(ticked(parts))


def _replace(spark: Any, frame: Any, target: TableTarget) -> None:
    """Put a table in the place of another: in one step if its catalog can. Otherwise the rows are written to a table
    beside it, which then takes its name: a query that fails leaves the old table, and may read it."""
    writer = frame.writeTo(ticked(target.parts))
    if target.format is not None:
        writer = writer.using(target.format)
    if target.by:
        from pyspark.sql.functions import col

        writer = writer.partitionedBy(*(col(ticked((name,))) for name in target.by))
    try:
        writer.createOrReplace()
        return
    except AnalysisException as error:
        if error.getCondition() != _NO_REPLACE:
            raise
    beside, aside = ((*target.parts[:-1], f"tsql_{uuid.uuid4().hex}") for _ in range(2))
    try:
        _create(frame, target, beside)
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


def _rename(spark: Any, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Rename a table within its catalog. Spark takes the new name without the catalog."""
    spark.sql(f"ALTER TABLE {ticked(old)} RENAME TO {ticked(new[1:] if len(new) > 2 else new)}")


def drop(spark: Any, parts: tuple[str, ...]) -> None:
    """Drop a table that is there."""
    try:
        spark.sql(f"DROP TABLE {ticked(parts)}")
    except (PySparkException, Py4JError) as error:
        raise _refused(parts, error) from error


def _refused(parts: tuple[str, ...], error: BaseException) -> CatalogError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CatalogError(f"Spark refuses {dotted(parts)}: {lines[0] if lines else type(error).__name__}")
