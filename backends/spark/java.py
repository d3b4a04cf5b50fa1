"""The Java side of a classic Spark session: what PySpark's own classes do not tell. One call brings a whole list as
JSON: a call per element takes a fraction of a millisecond each."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tsql.planner.physical.text import dotted


def java_session(session: SparkSession) -> Any:
    """The Java object of a session; None for Spark Connect, which has none."""
    return getattr(session, "_jsparkSession", None)


def to_json(session: SparkSession, value: Any) -> str:
    """A Java or Scala object as JSON."""
    jvm: Any = session._jvm
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    mapper.registerModule(jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
    return str(mapper.writeValueAsString(value))


def ticked(parts: tuple[str, ...]) -> str:
    """A qualified name as Spark's SQL takes it whatever it is."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def named(source: Any, parts: tuple[str, ...]) -> None:
    """Tell a source the name under which plan files find it."""
    if len(parts) > 1:
        source.qualified_name = dotted(parts)
    else:
        source.catalog_name = parts[0].lower()


def class_of(value: Any) -> str:
    """The class of a Java object, without its package."""
    return str(value.getClass().getSimpleName())
