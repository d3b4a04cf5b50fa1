"""Spark DataFrames in both directions: as a source of queries, and as a form of the result."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tsql.backends.io import Split, Statistics
from tsql.backends.io.normalize import batch_of, engine_schema, normalize, unique_names
from tsql.backends.names import FoundTable, NeverKept
from tsql.backends.spark.estimates import Estimated, estimated
from tsql.kernels.expr.errors import PlanError, SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import Type
from tsql.planner.physical.step import PhysicalPlan


class FrameSource:
    """A DataFrame as a table. The Spark backend reads it in tasks; other backends collect the columns they need."""

    in_cluster = True
    """Its rows are spread over a cluster: no single machine has them."""

    def __init__(self, frame: DataFrame, name: str = "the DataFrame"):
        self.frame, self.name = frame, name
        try:
            arrow = to_arrow_schema(frame.schema, timezone="UTC")
        except Exception as error:
            raise SourceError(
                f"{name}: {str(error).splitlines()[0]}",
                hint="leave the column out, or cast it before registering the DataFrame",
            ) from error
        self.schema = engine_schema(arrow, name)
        self.way: str | None = None
        """Why it is read as a DataFrame."""
        self._arrow = arrow

    def resolved(self) -> FoundTable:
        """What a query of now reads: the files of a DataFrame that is nothing but files, or the DataFrame."""
        from tsql.backends.spark.names import resolved

        return resolved(FrameSource(self.frame, self.name), lambda: self.frame)

    def empty(self) -> pa.Table:
        """No rows of these columns."""
        return self._arrow.empty_table()

    def select(self, columns: tuple[str, ...]) -> DataFrame:
        """The DataFrame with only these columns. If there are none, one is made up, since Arrow batches without columns
        have no rows."""
        named = self.frame.toDF(*self.schema.names)
        return (
            named.select(*(named[f"`{name.replace('`', '``')}`"] for name in columns))
            if columns
            else named.selectExpr("true AS rows")
        )

    @cached_property
    def _estimated(self) -> Estimated:
        return estimated(self.frame, self.schema)

    def statistics(self) -> Statistics:
        return self._estimated.statistics

    @property
    def note(self) -> str | None:
        """What `explain` tells about the way in which it is read, and where the number of its rows comes from."""
        return None if self.way is None else f"{self.way}; {self._estimated.origin}"

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return [Split(0, None, None, None)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        if not columns:
            yield batch_of([], (), self.frame.count())
            return
        table = self.select(columns).toArrow()
        for batch in table.to_batches():
            if batch.num_rows:
                yield batch_of(
                    [normalize(a, self.schema[n].type)[0] for a, n in zip(batch.columns, columns, strict=True)],
                    columns,
                    batch.num_rows,
                )

    def describe(self) -> None:
        return None


class StreamFrame(FrameSource):
    """A streaming DataFrame. Jobs read it, and queries cannot."""

    goes_on = True

    def resolved(self) -> FoundTable:
        return FoundTable(self, NeverKept())

    def stream(self, columns: tuple[str, ...]) -> DataFrame:
        """The streaming DataFrame with only these columns."""
        return super().select(columns)

    def select(self, columns: tuple[str, ...]) -> NoReturn:
        raise self._refused()

    def statistics(self) -> Statistics:
        return Statistics()

    @property
    def note(self) -> None:
        return None

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> NoReturn:
        raise self._refused()

    def read(self, split: Split, columns: tuple[str, ...]) -> NoReturn:
        raise self._refused()

    def _refused(self) -> SourceError:
        return SourceError(
            f"{self.name} is a streaming DataFrame, and a query reads rows that are there",
            hint="start() the query as a job, or query each batch in foreachBatch",
        )


_SPARK = {
    "BOOLEAN": T.BooleanType(), "TINYINT": T.ByteType(), "SMALLINT": T.ShortType(), "INTEGER": T.IntegerType(),
    "BIGINT": T.LongType(), "HUGEINT": T.DecimalType(38, 0), "UTINYINT": T.ShortType(), "USMALLINT": T.IntegerType(),
    "UINTEGER": T.LongType(), "UBIGINT": T.DecimalType(20, 0), "FLOAT": T.FloatType(), "DOUBLE": T.DoubleType(),
    "VARCHAR": T.StringType(), "BLOB": T.BinaryType(), "DATE": T.DateType(), "TIME": T.TimeType(6),
    "TIMESTAMP": T.TimestampNTZType(), "TIMESTAMPTZ": T.TimestampType(), "NULL": T.IntegerType(),
}  # fmt: skip


def spark_type(t: Type) -> Any:
    """The Spark type of a result column: unsigned integers become the next larger type, HUGEINT a DECIMAL(38, 0)."""
    if t.is_decimal:
        return T.DecimalType(t.width, t.scale)
    return _SPARK.get(t.name)


def spark_schema(plan: PhysicalPlan) -> T.StructType:
    """The schema of the DataFrame that a plan gives."""
    fields = []
    for column, name in zip(plan.columns, unique_names(list(plan.names)), strict=True):
        kind = spark_type(plan.root.schema[column].type)
        if kind is None:
            raise PlanError(
                f"column {name} is {plan.root.schema[column].type}, which a Spark DataFrame cannot hold",
                hint=f"cast it: {name}::VARCHAR",
            )
        fields.append(T.StructField(name, kind, True))
    return T.StructType(fields)


def is_frame(data: Any) -> bool:
    return isinstance(data, DataFrame)


__all__ = ["FrameSource", "is_frame", "spark_schema", "spark_type"]
