"""How many rows a DataFrame has, as Spark would say without a job: `estimated`, which `FrameSource` calls.

Spark counts rows where a plan tells (a range, a limit, a cached table, a table after ANALYZE), and elsewhere knows the
bytes of what a plan reads: divided by the width of a row they are rows. Spark takes a join to have as many bytes as the
product of its sides; here it has as many rows as the larger one, or their product if it has no condition. A generator
(`explode`) makes `GENERATED` rows of one. All of this serves costs only: statistics may be old, so no bounds are exact,
and that a column has no NULL is never said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tsql.backends.io import ColumnStatistics, LazyColumns, Statistics
from tsql.backends.spark.java import class_of, java_session
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.estimate import width

UNKNOWN_BYTES = 1 << 60
"""Spark's word for unknown is a size near 2^63 (`spark.sql.defaultSizeInBytes`)."""
MOST_NODES = 200
"""Of a larger plan nothing is asked: each node takes some calls."""
GENERATED = 10
"""The rows that `explode` makes of one, for Spark does not know how long arrays are. PostgreSQL takes an array to have
10 values if nothing tells (`estimate_array_length`). Unknown rows would be a million, also of a billion arrays."""
COUNTED = "rows as Spark counts them"
DERIVED = "rows by what Spark knows of its inputs"
UNKNOWN = "rows unknown to Spark"

_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}
_TOLD = re.compile(r"Statistics\(sizeInBytes=([0-9.]+) ([KMGTPE]?i?B)(?:, rowCount=([0-9.E+]+))?")
_SEVERAL = re.compile(r"^[ +:-]*(Join|Union)\b", re.MULTILINE)
"""Nodes over several inputs, whose size Spark does not know well."""
_GENERATE = re.compile(r"^[ +:-]*Generate\b", re.MULTILINE)
_TITLE = "== Optimized Logical Plan =="


@dataclass(frozen=True)
class Estimated:
    """What Spark knows, and how it knows the rows."""

    statistics: Statistics
    origin: str


NOTHING = Estimated(Statistics(None, None, {}), UNKNOWN)


def estimated(frame: DataFrame, schema: Schema) -> Estimated:
    """What Spark knows of a DataFrame whose columns are `schema`."""
    try:
        if java_session(frame.sparkSession) is None:
            return _told(frame, schema)
        plan = frame._jdf.queryExecution().optimizedPlan()
        walk = _Walk(frame.sparkSession)
        rows, origin = walk.rows(plan)
        if rows is None:
            return NOTHING
        return Estimated(Statistics(rows, None, walk.columns(plan, schema)), origin)
    except (PySparkException, Py4JError, ValueError):
        return NOTHING  # only an estimate is lost; the query says what is wrong


class _Walk:
    """Asks the nodes of an optimized plan, from the top down to those whose rows Spark knows."""

    def __init__(self, session: Any):
        self.session = session
        self.asked = 0
        self.known: list[Any] = []
        """Spark's statistics of the nodes that were asked and of the tables behind them."""

    def rows(self, plan: Any) -> tuple[int | None, str]:
        self.asked += 1
        if self.asked > MOST_NODES:
            return None, UNKNOWN
        found = self._of_table(plan) or plan.stats()
        self.known.append(found)
        if found.rowCount().isDefined():
            return int(found.rowCount().get()), COUNTED
        children = plan.children()
        inputs = [children.apply(place) for place in range(children.size())]
        if not inputs:
            size = int(found.sizeInBytes())
            return (None, UNKNOWN) if size >= UNKNOWN_BYTES else (size // row_bytes(plan), DERIVED)
        kind = class_of(plan)
        if kind == "Join" and str(plan.joinType().sql()) in ("LEFT SEMI", "LEFT ANTI"):
            inputs = inputs[:1]
        below = [self.rows(one) for one in inputs]
        numbers = [rows for rows, _ in below if rows is not None]
        if len(numbers) < len(below):
            return None, UNKNOWN
        return _made_of(plan, kind, numbers), below[0][1] if kind == "Project" else DERIVED

    def _of_table(self, plan: Any) -> Any:
        """What ANALYZE TABLE has found. Spark plans with the rows and columns of it only if `spark.sql.cbo.enabled`."""
        kind = class_of(plan)
        if kind not in ("LogicalRelation", "HiveTableRelation"):
            return None
        table = plan.tableMeta() if kind == "HiveTableRelation" else plan.catalogTable()
        if kind == "LogicalRelation":
            if not table.isDefined():
                return None
            table = table.get()
        stats = table.stats()
        if not stats.isDefined() or not stats.get().rowCount().isDefined():
            return None
        return stats.get().toPlanStats(plan.output(), True)

    def columns(self, plan: Any, schema: Schema) -> Mapping[str, ColumnStatistics]:
        places = {name: place for place, name in enumerate(schema.names)}
        return LazyColumns(schema.names, lambda name: self._column(plan.output().apply(places[name]), schema, name))

    def _column(self, attribute: Any, schema: Schema, name: str) -> ColumnStatistics:
        try:
            for stats in self.known:
                found = stats.attributeStats().get(attribute)
                if found.isDefined():
                    return _column_statistics(found.get(), schema[name].type.is_integer)
        except Py4JError:
            pass  # only an estimate is lost
        return ColumnStatistics()


def _made_of(plan: Any, kind: str, inputs: list[int]) -> int:
    """The rows of a node whose inputs have so many."""
    if kind == "Union":
        return sum(inputs)
    if kind == "Generate":
        return GENERATED * inputs[0]
    if kind == "Join" and not plan.condition().isDefined():
        return prod(inputs)
    return max(inputs)


def _column_statistics(found: Any, is_integer: bool) -> ColumnStatistics:
    def of(option: Any) -> int | None:
        return int(option.get()) if option.isDefined() else None

    bounds = (of(found.min()), of(found.max())) if is_integer else (None, None)
    return ColumnStatistics(*bounds, nulls=None, distinct=of(found.distinctCount()))


def row_bytes(plan: Any) -> int:
    """What Spark takes a row of a plan to need."""
    return 8 + int(plan.schema().defaultSize())


def _told(frame: Any, schema: Schema) -> Estimated:
    """What a server of Spark Connect tells in the text of a plan: the top of it, since the text does not say how wide
    the rows of others are. One request, no job."""
    text = frame._explain_string(mode="cost").partition(_TITLE)[2].partition("\n==")[0]
    told = list(_TOLD.finditer(text))
    if not told:
        return NOTHING
    is_chain = not _SEVERAL.search(text)
    counted = [one for one in (told if is_chain else told[:1]) if one[3] is not None]
    if counted:
        rows = int(float(counted[0][3])) * _generated(text[: counted[0].start()])
        return Estimated(Statistics(rows, None, {}), COUNTED if counted[0] is told[0] else DERIVED)
    if not is_chain or any(_bytes(one) >= UNKNOWN_BYTES for one in told):
        return NOTHING
    rows = int(_bytes(told[0])) // (8 + int(width(schema))) * _generated(text)
    return Estimated(Statistics(rows, None, {}), DERIVED)


def _generated(text: str) -> int:
    """The rows that the generators in the text of a plan make of one."""
    made: int = GENERATED ** len(_GENERATE.findall(text))
    return made


def _bytes(told: re.Match[str]) -> float:
    return float(told[1]) * _UNITS[told[2]]
