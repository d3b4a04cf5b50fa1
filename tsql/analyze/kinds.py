"""The results of `analyze`: one value per statement, which the session executes. A `position` is that of the name that
the statement is about; errors without a position of their own are shown there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.backends.sinks import TableTarget
    from tsql.catalog.definition import Key, Macro, TableDefinition
    from tsql.catalog.external import External
    from tsql.kernels.expr.nodes import Expr
    from tsql.kernels.expr.types import Type
    from tsql.planner.hints.constraints import Hint
    from tsql.planner.logical import nodes as logical


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
    """CREATE [OR REPLACE] [TEMP] TABLE [IF NOT EXISTS] name (..) or AS query; a query without data gives its columns
    only."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    name: str
    query: Query | None = None
    replace: bool = False
    if_not_exists: bool = False
    definition: TableDefinition | None = None
    temporary: bool = False
    with_data: bool = True
    period: tuple[str, str] | None = None


@dataclass(frozen=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW name AS text; the text has been analyzed once, so it is known to be good."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    name: str
    text: str
    replace: bool = False
    if_not_exists: bool = False
    temporary: bool = False


@dataclass(frozen=True)
class CreateExternal:
    """CREATE STREAM, or CREATE TABLE .. WITH (..): an entry whose rows are elsewhere."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    name: str
    entry: External
    replace: bool = False
    if_not_exists: ClassVar[bool] = False

    @property
    def temporary(self) -> bool:
        return self.entry.temporary


@dataclass(frozen=True)
class CreateMacro:
    """CREATE [OR REPLACE] MACRO."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    macro: Macro
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class Drop:
    """DROP TABLE, VIEW, STREAM or MACRO (`kind` is the word in lower case)."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    kind: str
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class Alter:
    """ALTER TABLE: the table with its new definition, or its new name. `columns` says for each new column which old one
    it is, or which expression over the old ones (a query of one column) gives its values."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    name: str
    new_name: str | None = None
    definition: TableDefinition | None = None
    columns: tuple[tuple[str, str | Query], ...] = ()


@dataclass(frozen=True)
class Nothing:
    """A statement that has nothing to do, such as ALTER TABLE IF EXISTS of a table that is not there."""


@dataclass(frozen=True)
class Conflict:
    """What to do with a row whose key exists already: nothing, or update the existing row. `keys`: the keys to
    check."""

    keys: tuple[Key, ...]
    update: Callable[[Any], Query] | None = None
    columns: tuple[str, ...] = ()


Returning = Callable[[Any], Query]
"""RETURNING: from a source with the changed rows to the query over them."""


@dataclass(frozen=True)
class Insert:
    """INSERT: a query that gives whole rows of the table, or `rows` of constants."""

    table: str
    query: Query | None
    rows: tuple[tuple[Expr, ...], ...] = ()
    conflict: Conflict | None = None
    returning: Returning | None = None


@dataclass(frozen=True)
class Delete:
    """DELETE: a query that gives the positions of the rows, and their columns with RETURNING. No query: all rows."""

    table: str
    query: Query | None
    returning: Returning | None = None


@dataclass(frozen=True)
class Update:
    """UPDATE: a query that gives the position, the new values of `columns`, and the `old` values that a check or
    RETURNING needs."""

    table: str
    query: Query
    columns: tuple[str, ...]
    old: tuple[str, ...]
    returning: Returning | None = None


@dataclass(frozen=True)
class CopyTo:
    """COPY query TO 'path' (options)."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    query: Query
    path: str
    options: dict[str, Any]
    places: dict[str, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class SaveTable:
    """CREATE TABLE .. AS and INSERT of a table in the catalogs of the cluster."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    target: TableTarget
    query: Query
    if_not_exists: bool = False


@dataclass(frozen=True)
class KeepDataset:
    """CREATE TABLE name WITH (target = 'spark') AS query: its rows stay in the cluster."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    name: str
    query: Query
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSaved:
    """DROP TABLE of tables in the catalogs of the cluster."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    tables: tuple[tuple[str, ...], ...]
    if_exists: bool = False


@dataclass(frozen=True)
class TransactionStep:
    """BEGIN, COMMIT, ROLLBACK or CHECKPOINT, in lower case."""

    step: str


@dataclass(frozen=True)
class Summarize:
    """SUMMARIZE query or table."""

    query: Query


@dataclass(frozen=True)
class CompilePlan:
    """COMPILE PLAN 'path' FOR query."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    path: str
    query: Query


@dataclass(frozen=True)
class ExecutePlan:
    """EXECUTE PLAN 'path'."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    path: str


@dataclass(frozen=True)
class Prepare:
    """PREPARE name AS text; the text is known to be a statement."""

    name: str
    text: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Execute:
    """EXECUTE name(..): the names of the parameters (numbers, if they are given by position), and the query of one row
    with their values."""

    name: str
    arguments: tuple[str, ...]
    query: Query | None
    position: int | None = None


@dataclass(frozen=True)
class Deallocate:
    """DEALLOCATE name."""

    name: str


@dataclass(frozen=True)
class Set:
    """SET name = value; None puts the default back (RESET)."""

    position: int | None = field(default=None, compare=False, kw_only=True)
    name: str
    value: Any


@dataclass(frozen=True)
class ShowTables:
    """SHOW TABLES; with `all`, their columns too."""

    all: bool = False


@dataclass(frozen=True)
class ShowStreams:
    """SHOW STREAMS, or SHOW SINKS."""

    sinks: bool = False


@dataclass(frozen=True)
class InsertIntoSink:
    """INSERT INTO sink query."""

    name: str
    query: Query
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class CreateLiveView:
    """CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name AS query."""

    name: str
    query: Query
    replace: bool = False
    if_not_exists: bool = False
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Describe:
    """DESCRIBE query or table; `table` is the name of a table whose constraints are shown too. `columns` are those of
    the result, and such as cannot be read."""

    query: Query
    table: str | None = None
    columns: tuple[tuple[str, Type], ...] = ()


Change = (
    CreateTable
    | CreateView
    | CreateExternal
    | CreateMacro
    | Drop
    | Alter
    | Nothing
    | Insert
    | Delete
    | Update
    | TransactionStep
)
"""Statements that change the catalog; `tsql/statements/changes.py` carries them out."""

Statement = (
    Query
    | Explain
    | Change
    | CopyTo
    | SaveTable
    | DropSaved
    | KeepDataset
    | CompilePlan
    | ExecutePlan
    | Prepare
    | Execute
    | Deallocate
    | Set
    | ShowTables
    | ShowStreams
    | InsertIntoSink
    | CreateLiveView
    | Describe
    | Summarize
)
