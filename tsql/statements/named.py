"""PREPARE, EXECUTE and DEALLOCATE: statements that a session keeps by name, with parameters that EXECUTE gives values
to.

`tsql/analyze/named.py` analyzes them; `ScriptRunner` keeps a `NamedStatements`."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.kernels.expr.errors import BindError, CatalogError
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.relation import Relation

if TYPE_CHECKING:
    from tsql.analyze import kinds as statements


@dataclass(frozen=True)
class Named:
    """A statement with a name: its text, and the parameters that it names."""

    name: str
    text: str
    parameters: tuple[str, ...]


class NamedStatements:
    """The statements of a session by lower-case name."""

    def __init__(self) -> None:
        self._known: dict[str, Named] = {}

    def prepare(self, statement: statements.Prepare) -> None:
        """Keep a statement, in place of one of the same name."""
        self._known[statement.name.lower()] = Named(statement.name, statement.text, statement.parameters)

    def text_of(self, name: str) -> str | None:
        """The text of the statement of a name; None if there is none."""
        known = self._known.get(name.lower())
        return None if known is None else known.text

    def deallocate(self, statement: statements.Deallocate) -> None:
        """Forget a statement; as in DuckDB one that is not there is no error."""
        self._known.pop(statement.name.lower(), None)

    def find(
        self, statement: statements.Execute, relate: Callable[[statements.Query], Relation]
    ) -> tuple[Named, dict[str, Type], dict[str, Any]]:
        """The statement that EXECUTE means, with the types and the stored values of its parameters; `relate` runs their
        query."""
        known = self._known.get(statement.name.lower())
        if known is None:
            from tsql.planner.bind.binder import nearest

            hint = nearest(statement.name, [named.name for named in self._known.values()])
            raise CatalogError(
                f'prepared statement "{statement.name}" does not exist', position=statement.position, hint=hint
            )
        _check_arguments(statement, known)
        if statement.query is None:
            return known, {}, {}
        relation = relate(statement.query)
        row = [column[0] for column in relation.arrow().columns]
        kinds = dict(zip(statement.arguments, relation.sql_types, strict=True))
        return (
            known,
            kinds,
            {name: stored_value(value, kinds[name]) for name, value in zip(statement.arguments, row, strict=True)},
        )


def stored_value(scalar: pa.Scalar, kind: Type) -> Any:
    """A value of a result in the stored form of `Literal`."""
    value = scalar.value if kind.is_temporal else scalar.as_py()
    if value is None:
        return None
    if kind.name == "INTERVAL":
        return value.months, value.days, value.nanoseconds // 1000
    if kind.is_decimal or kind.name == "HUGEINT":
        return int(Decimal(value).scaleb(kind.scale if kind.is_decimal else 0, Context(prec=76)))
    return value


def _check_arguments(statement: statements.Execute, known: Named) -> None:
    """Refuse arguments that do not fit the parameters."""
    missing = [f"${name}" for name in known.parameters if name not in statement.arguments]
    if missing:
        raise BindError(
            f"EXECUTE gives no value for {', '.join(missing)}",
            position=statement.position,
            hint=f"the statement is: {known.text}",
        )
    excess = [f"${name}" for name in statement.arguments if name not in known.parameters]
    if excess:
        raise BindError(
            f"the prepared statement has no parameter {', '.join(excess)}",
            position=statement.position,
            hint=f"the statement is: {known.text}",
        )
