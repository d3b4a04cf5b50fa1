"""What `analyze` makes of a text: one of these values for each statement; the session carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tsql.planner import logical
from tsql.planner.hints import Hint


@dataclass(frozen=True)
class Query:
    """A query: its logical plan, its text, its hints."""

    plan: logical.Output
    text: str
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True)
class Explain:
    """EXPLAIN; level is LOGICAL, PHYSICAL, PIPELINES, KIR, LLVM, ASM or ANALYZE."""

    level: str
    query: Query


@dataclass(frozen=True)
class CreateTable:
    """CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name AS query."""

    name: str
    query: Query
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW name AS text; the text has been analyzed once, so it is known to be good."""

    name: str
    text: str
    replace: bool = False


@dataclass(frozen=True)
class Drop:
    """DROP TABLE or DROP VIEW (`kind` is "table" or "view")."""

    kind: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class CompilePlan:
    """COMPILE PLAN 'path' FOR query."""

    path: str
    query: Query


@dataclass(frozen=True)
class ExecutePlan:
    """EXECUTE PLAN 'path'."""

    path: str


@dataclass(frozen=True)
class Set:
    """SET name = value; None puts the default back (RESET)."""

    name: str
    value: Any


@dataclass(frozen=True)
class ShowTables:
    """SHOW TABLES."""


@dataclass(frozen=True)
class Describe:
    """DESCRIBE query or table."""

    query: Query


Statement = Query | Explain | CreateTable | CreateView | Drop | CompilePlan | ExecutePlan | Set | ShowTables | Describe
