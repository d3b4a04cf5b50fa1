"""The attributes of a step's line in a plan file. Each step states the kind and the bounds of an attribute's value. The
check is here, in one place, so that every step refuses the same mistakes with the same message.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from fractions import Fraction
from typing import TYPE_CHECKING

from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.errors import PlanError
from tsql.kernels.expr.nodes import Call, Cast, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN, DOUBLE, NULL, Type, implicit_cast_cost
from tsql.planner.bind.fold import fold_exact
from tsql.planner.bind.types import coerce
from tsql.planner.physical.properties import MAX_SHARDS
from tsql.planner.physical.text import split_assignment

if TYPE_CHECKING:
    from tsql.planner.physical.line import LineContext

LEAST_WORD, GREATEST_WORD = -(2**63), 2**63 - 1

_INTEGER = re.compile(r"-?[0-9]{1,19}$")
_REAL = re.compile(r"[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?$")


class Attributes:
    """The words after the inputs on a step's line: name=value pairs and, for a scan, one bare word."""

    def __init__(self, words: list[str], context: LineContext):
        self.context = context
        self.bare_words: list[str] = []
        self.pairs: list[tuple[str, str, bool]] = []
        """(name, text, whether the name is quoted). A quoted name is always a column."""
        self.used: set[str] = set()
        self.has_columns = False
        for word in words:
            parts = split_assignment(word)
            if parts is None:
                self.bare_words.append(word)
            else:
                self.pairs.append((context.name(parts[0]), parts[1], parts[0].startswith('"')))

    def error(self, name: str, message: str, hint: str | None = None) -> PlanError:
        """An error at the place of an attribute."""
        return self.context.error(message, hint, at=name)

    def bare(self) -> str:
        if len(self.bare_words) != 1:
            raise self.context.error("expected one table")
        return self.bare_words[0]

    def optional(self, name: str) -> str | None:
        """The text of an attribute, if the line has it."""
        found = [t for n, t, is_quoted in self.pairs if n == name and not is_quoted]
        if len(found) > 1:
            raise self.error(name, f"{name} is given twice")
        self.used.add(name)
        return found[0] if found else None

    def text(self, name: str) -> str:
        found = self.optional(name)
        if found is None:
            raise self.context.error(f"{name}=.. is missing")
        return found

    def choice(self, name: str, options: Collection[str], default: str | None = None) -> str:
        """One of a few words."""
        found = self.optional(name) or default
        if found is None:
            raise self.context.error(f"{name}=.. is missing")
        if found not in options:
            raise self.error(name, f"{name}={found}: it is {any_of(options)}")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        return self.choice(name, ("yes", "no"), "yes" if default else "no") == "yes"

    def integer(self, name: str, least: int = LEAST_WORD, greatest: int = GREATEST_WORD) -> int | None:
        """An integer written in digits."""
        text = self.optional(name)
        if text is None:
            return None
        if not _INTEGER.match(text):
            raise self.error(name, f"{name}={text}: it is a whole number")
        if not least <= int(text) <= greatest:
            raise self.error(name, f"{name}={text}: it is a number from {least} to {greatest}")
        return int(text)

    def real(self, name: str, least: float, greatest: float) -> float | None:
        text = self.optional(name)
        if text is not None and not (_REAL.match(text) and least <= float(text) <= greatest):
            raise self.error(name, f"{name}={text}: it is a number from {least:g} to {greatest:g}")
        return None if text is None else float(text)

    def shards(self) -> int | None:
        return self.integer("shards", 1, MAX_SHARDS)

    def items(self, name: str) -> list[str]:
        """The texts of a list in parentheses."""
        return self.parts(name, self.text(name))

    def parts(self, name: str, text: str) -> list[str]:
        """The items of a list, or of a list within one."""
        text = text.strip()
        if not (len(text) >= 2 and text.startswith("(") and text.endswith(")")):
            raise self.error(
                name,
                f"{name} takes a list in parentheses"
                if text == self.text(name)
                else f"{name}: {text} is no list in parentheses",
            )
        return self.context.split(text[1:-1])

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(self.context.name(i) for i in self.items(name))

    def name(self, name: str) -> str:
        """A name that the step gives to something."""
        return self.context.name(self.text(name))

    def column(self, name: str, schema: Schema, of: str, type: Type | None = None) -> str | None:
        """A column that there is, of a type."""
        text = self.optional(name)
        return None if text is None else self._known(name, self.context.name(text), schema, of, type)

    def columns(self, name: str, schema: Schema, of: str, type: Type | None = None) -> tuple[str, ...]:
        """Columns that there are, each once."""
        found = self.names(name)
        if len(set(found)) != len(found):
            raise self.error(name, f"{name} has {first_twice(found)} twice")
        return tuple(self._known(name, column, schema, of, type) for column in found)

    def _known(self, name: str, column: str, schema: Schema, of: str, type: Type | None) -> str:
        if column not in schema:
            raise self.error(name, f"{name}: {of} has no column {column}", f"it has {schema}")
        if type is not None and schema[column].type != type:
            raise self.error(name, f"{name}: {column} is {schema[column].type}, not {type}")
        return column

    def expression(self, name: str, schema: Schema) -> Expr | None:
        text = self.optional(name)
        return None if text is None else self.context.expression(text, schema)

    def condition(self, name: str, schema: Schema) -> Expr | None:
        """An expression that is true or false."""
        found = self.expression(name, schema)
        if found is not None and found.type != BOOLEAN:
            raise self.error(name, f"{name} is {found.type}, not BOOLEAN")
        return found

    def count(self, name: str) -> Expr | None:
        """A number of rows: a constant or a parameter, a whole number of 0 or more, or NULL for all of them."""
        text = self.optional(name)
        if text is None:
            return None
        found = self.context.constant(text)
        if found.type != NULL and not found.type.is_integer:
            raise self.error(name, f"{name} is a whole number, not {found.type}")
        if isinstance(found, Literal) and found.value is not None and found.value < 0:
            raise self.error(name, f"{name} is a number of rows, and {found.value} is less than none")
        return found

    def percentage(self, name: str) -> Expr | None:
        """A share of the rows: a constant or a parameter of DOUBLE."""
        text = self.optional(name)
        found = None if text is None else self.context.constant(text)
        if found is not None and not found.type.is_float:
            raise self.error(name, f"{name} is a DOUBLE, not {found.type}")
        if isinstance(found, Literal) and found.value is not None and not 0 <= found.value <= 100:
            raise self.error(name, f"{name} is from 0 to 100, not {found.value:g}")
        return found

    def assignments(self) -> list[tuple[str, str]]:
        """The pairs that are computed columns: all that were not asked for by name."""
        rest = [(n, t) for n, t, is_quoted in self.pairs if is_quoted or n not in self.used]
        self.used |= {n for n, _ in rest}
        self.has_columns = True
        if len({n for n, _ in rest}) != len(rest):
            raise self.context.error(f"the column {first_twice([n for n, _ in rest])} is given twice")
        return rest

    def check_used(self, has_bare: bool) -> None:
        unknown = [n for n, _, is_quoted in self.pairs if (not self.has_columns if is_quoted else n not in self.used)]
        if unknown:
            raise self.error(
                unknown[0],
                f"unknown attribute {unknown[0]}",
                f"attributes are {', '.join(sorted(self.used))}" if self.used else None,
            )
        if self.bare_words and not has_bare:
            raise self.context.error(f"unknown word {self.bare_words[0]}")


def any_of(options: Collection[str]) -> str:
    """`a`, `a or b`, or `one of a, b, c`."""
    return " or ".join(options) if len(options) <= 2 else f"one of {', '.join(options)}"


def first_twice(names: Collection[str]) -> str | None:
    """The first of the names that comes again."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def as_value(expr: Expr, type: Type) -> Expr | None:
    """A constant as a value of a column's type: itself, or a cast that loses nothing. None if there is no such cast."""
    if expr.type == type:
        return expr
    if isinstance(expr, Literal) and not type.is_float:
        return fold_exact(expr, type)
    if implicit_cast_cost(expr.type, type) is None:
        return None
    is_known = all(isinstance(part, (Literal, Call, Cast)) for part in expr.walk())
    value = expr if isinstance(expr, Literal) else evaluate(expr) if is_known else None
    if value is None:
        keeps = _keeps_type(expr.type, type)
    else:
        keeps = _keeps_number(value, type) if type.is_float else fold_exact(value, type) is not None
    return coerce(expr, type) if keeps else None


def _keeps_number(value: Literal, type: Type) -> bool:
    """Whether a number survives the cast to a float: an integer exactly, a decimal as the nearest one of its scale."""
    if value.value is None or not (value.type.is_integer or value.type.is_decimal):
        return True
    scale = value.type.scale if value.type.is_decimal else 0
    try:
        near = value.value / 10**scale
        near = near if type == DOUBLE else struct.unpack("f", struct.pack("f", near))[0]
    except OverflowError:
        return False
    return bool(round(Fraction(near) * 10**scale) == value.value)


def _keeps_type(source: Type, target: Type) -> bool:
    """Whether each number of a type is found again in another one."""
    if target.is_float and (source.is_integer or source.is_decimal):
        digits = source.width if source.is_decimal else len(str(source.bounds[1]))
        return digits <= (15 if target == DOUBLE else 6)
    whole = source.is_decimal and target.is_decimal and source.width - source.scale > target.width - target.scale
    return not whole and not (source.is_decimal and target.is_decimal and source.scale > target.scale)
