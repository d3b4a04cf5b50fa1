"""The registry of scalar functions: one `@function(...)` holds everything there is to know about an overload.

`planner/bind/binder.py` asks `resolve` which overload fits argument types; kernels ask `Function.emit`. Function
modules import no code generator: an `emit` function receives the kernel builder `k` and works on the values it is
given."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tsql.kernels.expr.types import BIGINT, DOUBLE, NULL, TIMESTAMP, VARCHAR, Type, implicit_cast_cost
from tsql.kernels.process import forks
from tsql.kernels.process.quick_dataclass import dataclass

Pattern = Type | str
"""An argument: a Type, or the name of a class of types ("any", "numeric", "integer", "decimal", "string", "temporal",
"interval", "float"). A class name with a suffix ("any:T") must be the same type wherever the suffix is the same."""


@dataclass(frozen=True)
class Function:
    """One overload of a scalar function.

    nulls: "strict": NULL in, NULL out, and `emit` sees values only; "custom": `emit` sees each Datum with its validity;
        "expression": `emit(k, call, row)` emits its arguments itself (AND, OR, COALESCE).
    emit: f(k, *args) -> Datum or value; args are Datums. None for a host function.
    host: f(*pyarrow arrays) -> pyarrow array; evaluated per batch outside the kernel, and shown so by `explain`.
    lazy: emit inside a branch that runs for valid rows only (loops, calls, anything dearer than a few instructions).
    constant: argument positions that must be constants (a regular expression, a format).
    ranged: `emit` understands Datums whose registers are not those of their type (see Datum.range).
    typed: `emit` gets the result type after `k`, for functions whose result type the binder decides.
    returns_for: f(types, values) -> Type, where the result type depends on constant arguments (round of a decimal,
        date_part); values are those of literal arguments, None for others. Raises BindError for a bad constant.
    duckdb: spelling for the oracle, if it differs from the name. examples: (SQL, expected) pairs run by the tests.
    """

    name: str
    args: tuple[Pattern, ...]
    returns: Type | Callable[..., Type]
    emit: Callable[..., Any] | None = None
    host: Callable[..., Any] | None = None
    nulls: str = "strict"
    variadic: bool = False
    lazy: bool = False
    constant: tuple[int, ...] = ()
    can_fail: bool = False
    ranged: bool = False
    typed: bool = False
    duckdb: str | None = None
    examples: tuple[tuple[str, Any], ...] = ()
    returns_for: Callable[[tuple[Type, ...], tuple[Any, ...]], Type] | None = None

    def return_type(self, types: tuple[Type, ...], values: tuple[Any, ...] | None = None) -> Type:
        """The result type; `values` are the literal values of the arguments (None where not constant)."""
        if self.returns_for is not None:
            return self.returns_for(types, (None,) * len(types) if values is None else values)
        return self.returns(*types) if callable(self.returns) else self.returns

    @property
    def module(self) -> str:
        """Where it is registered."""
        body = self.emit or self.host
        return "" if body is None else body.__module__


class Overload(Protocol):
    """What a registry asks of its functions."""

    @property
    def name(self) -> str: ...

    @property
    def args(self) -> tuple[Pattern, ...]: ...

    @property
    def variadic(self) -> bool: ...

    @property
    def module(self) -> str: ...


F = TypeVar("F", bound=Overload)


class Registry(Generic[F]):
    """All overloads by lower-case name. The modules of `package` register them, and are imported on the first lookup: a
    process that finds its plans and programs on disk needs few of them."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._overloads: dict[str, list[F]] = {}
        self._exact: dict[tuple[str, tuple[Type, ...]], F] = {}
        self._filled = self._filling = False
        self._lock = forks.rlock()

    def add(self, function: F) -> None:
        self._exact.clear()
        self._overloads.setdefault(function.name, []).append(function)

    @property
    def overloads(self) -> dict[str, list[F]]:
        """The overloads of each name."""
        if not self._filled:
            self.fill()
        return self._overloads

    def fill(self) -> None:
        """Import the modules now. A module that will need functions anyway calls this among its own imports, not in the
        middle of a query."""
        with self._lock:
            # A module that looks for a function while it is imported finds those that are there.
            if not (self._filled or self._filling):
                self._fill()

    def _fill(self) -> None:
        """Import all modules of the package. Overloads are in the order of these imports; those of modules that were
        imported earlier for other reasons come first."""
        import pkgutil

        self._filling = True
        try:
            package = importlib.import_module(self._package)
            names = [found.name for found in pkgutil.walk_packages(package.__path__, f"{self._package}.")]
            before = {name: place for place, name in enumerate(names) if name in sys.modules}
            for name in names:
                importlib.import_module(name)
        finally:
            self._filling = False
        for functions in self._overloads.values():
            functions.sort(key=lambda function: before.get(function.module, len(names)))
        self._exact.clear()
        self._filled = True

    def names(self) -> list[str]:
        return sorted(self.overloads)

    def resolve(
        self, name: str, types: tuple[Type, ...], literals: tuple[int | str | None, ...] = ()
    ) -> tuple[F, tuple[Type, ...]] | None:
        """The cheapest overload of `name` for these argument types and the types to cast the arguments to.

        `literals` tells which arguments are literals as written, that adapt to what is asked for: the value of an
        integer, "string" for a string, None for an argument of a settled type.
        """
        best: tuple[int, F, tuple[Type, ...]] | None = None
        literals = literals or (None,) * len(types)
        for function in self.overloads.get(name, ()):
            match = _match(function, types, literals)
            if match is not None and (best is None or match[0] < best[0]):
                best = (match[0], function, match[1])
        return None if best is None else (best[1], best[2])

    def find(self, name: str, types: tuple[Type, ...]) -> F:
        """The overload whose argument types are exactly `types` (what a bound Call refers to)."""
        known = self._exact.get((name, types))
        if known is None:
            found = self.resolve(name, types)
            if found is None:
                raise KeyError(f"{name}({', '.join(map(str, types))})")
            known = self._exact[name, types] = found[0]
        return known


CLASSES: dict[str, Callable[[Type], bool]] = {
    "any": lambda t: True,
    "numeric": lambda t: t.is_numeric,
    "integer": lambda t: t.is_integer,
    "decimal": lambda t: t.is_decimal,
    "float": lambda t: t.is_float,
    "string": lambda t: t.is_string,
    "temporal": lambda t: t.is_temporal,
}


NULL_AS = {"numeric": BIGINT, "integer": BIGINT, "float": DOUBLE, "string": VARCHAR, "temporal": TIMESTAMP}
"""The type that a bare NULL takes where an argument may be any of a class."""


def _literal_cost(given: Type, literal: int | str | None, target: Type) -> int | None:
    """As `implicit_cast_cost`, for an argument that may be a literal."""
    if literal == "string" and given != target:
        return 20
    if isinstance(literal, int) and target.is_integer and given != target:
        low, high = target.bounds
        return 1 if low <= literal <= high else None
    return implicit_cast_cost(given, target)


def _match(
    function: Overload, types: tuple[Type, ...], literals: tuple[int | str | None, ...]
) -> tuple[int, tuple[Type, ...]] | None:
    patterns = function.args
    if function.variadic and len(types) >= len(patterns) - 1:
        patterns = patterns[:-1] + patterns[-1:] * (len(types) - len(patterns) + 1)
    if len(patterns) != len(types):
        return None
    cost = 0
    casts: list[Type | tuple[str, str]] = []
    bound: dict[str, Type] = {}
    for pattern, given, literal in zip(patterns, types, literals, strict=True):
        if isinstance(pattern, Type):
            step = _literal_cost(given, literal, pattern)
            if step is None:
                return None
            cost += step
            casts.append(pattern)
            continue
        kind, _, variable = pattern.partition(":")
        if given.name == "NULL":
            if kind == "decimal":
                return None
            cost += 3
            casts.append((kind, variable))
            continue
        if not CLASSES[kind](given):
            return None
        if variable and bound.setdefault(variable, given) != given:
            return None
        cost += 2  # a class matches less well than the very type
        casts.append(given)
    return cost, tuple(c if isinstance(c, Type) else bound.get(c[1], NULL_AS.get(c[0], NULL)) for c in casts)


SCALARS: Registry[Function] = Registry("tsql.kernels.functions")


def function(
    *names: str,
    args: tuple[Pattern, ...] | list[Pattern],
    returns: Type | Callable[..., Type],
    nulls: str = "strict",
    variadic: bool = False,
    lazy: bool = False,
    constant: tuple[int, ...] = (),
    can_fail: bool = False,
    ranged: bool = False,
    typed: bool = False,
    host: bool = False,
    duckdb: str | None = None,
    examples: tuple[tuple[str, Any], ...] = (),
    returns_for: Callable[[tuple[Type, ...], tuple[Any, ...]], Type] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an overload under one or more names."""

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            SCALARS.add(
                Function(
                    name=name, args=tuple(args), returns=returns, emit=None if host else body,
                    host=body if host else None, nulls=nulls, variadic=variadic, lazy=lazy, constant=constant,
                    can_fail=can_fail, ranged=ranged, typed=typed, duckdb=duckdb,
                    examples=examples if name == names[0] else (),
                    returns_for=returns_for,
                )
            )  # fmt: skip
        return body

    return register
