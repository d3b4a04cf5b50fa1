"""Conditions taken apart: conjunctions, equalities, the outer columns in them, and what they say of NULLs. Rules and
unnesting share this."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, InList, Literal, Outer, rewrite
from tsql.kernels.expr.schema import Field
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.process.quick_dataclass import dataclass

TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)
EQUALITIES = ("=", "is_not_distinct_from")
_NEVER_NULL = ("is_null", "is_not_null", "is_distinct_from", "is_not_distinct_from")
_NULL_FROM_NULLS_ONLY = {"=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "+", "-", "*", "neg"}


def conjuncts(expr: Expr | None) -> list[Expr]:
    """The parts of a conjunction, in order; none for None."""
    parts: list[Expr] = []
    stack = [] if expr is None else [expr]
    while stack:
        part = stack.pop()
        if isinstance(part, Call) and part.name == "and":
            stack.extend(reversed(part.args))
        else:
            parts.append(part)
    return parts


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """The parts joined by AND, each once; None for none."""
    unique = list(dict.fromkeys(parts))
    if not unique:
        return None
    return unique[0] if len(unique) == 1 else Call("and", tuple(unique), BOOLEAN)


def column(field: Field) -> Column:
    """The column of a schema's field."""
    return Column(field.name, field.type, field.nullable)


def all_of(parts: Iterable[Expr]) -> Expr:
    """The parts joined by AND, each once; true for none."""
    found = conjunction(parts)
    return TRUE if found is None else found


def call(name: str, *args: Expr) -> Call:
    """A comparison or another operator that gives BOOLEAN."""
    return Call(name, args, BOOLEAN)


def same(a: Expr, b: Expr) -> Call:
    """Equality in which NULL equals NULL."""
    return call("is_not_distinct_from", a, b)


def outers(*exprs: Expr) -> set[str]:
    """The names of the outer columns in expressions."""
    return {node.name for expr in exprs for node in expr.walk() if isinstance(node, Outer)}


def resolve(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace outer columns by expressions."""
    return rewrite(expr, lambda e: values.get(e.name, e) if isinstance(e, Outer) else e)


@dataclass(frozen=True)
class JoinKey:
    """An equality of a left and a right expression; `null_safe`: NULL equals NULL."""

    left: Expr
    right: Expr
    null_safe: bool = False

    @property
    def expr(self) -> Call:
        """The equality as a condition."""
        return call("is_not_distinct_from" if self.null_safe else "=", self.left, self.right)

    @property
    def never_null(self) -> bool:
        """Whether the equality has a value for every pair of rows."""
        return never_null(self.expr, ())

    def turned(self) -> JoinKey:
        """The same key with the sides exchanged."""
        return JoinKey(self.right, self.left, self.null_safe)

    def sql(self) -> str:
        return self.expr.sql()


def join_key(expr: Expr, left: Collection[str], right: Collection[str]) -> JoinKey | None:
    """The key that an equality (either kind) is if one operand names columns of the left only and the other of the
    right only."""
    if not (isinstance(expr, Call) and expr.name in EQUALITIES):
        return None
    a, b = expr.args
    in_a, in_b = set(a.columns()), set(b.columns())
    if not in_a or not in_b or outers(a, b):
        return None
    if in_a <= set(left) and in_b <= set(right):
        return JoinKey(a, b, expr.name != "=")
    return JoinKey(b, a, expr.name != "=") if in_b <= set(left) and in_a <= set(right) else None


def is_null_with(expr: Expr, names: Collection[str]) -> bool:
    """Whether an expression is surely NULL in a row where all of the named columns are."""
    match expr:
        case Column():
            return expr.name in names
        case Literal():
            return expr.value is None
        case Cast():
            return is_null_with(expr.arg, names)
        case InList():
            return is_null_with(expr.arg, names)
        case Call("and" | "or", args):
            return all(is_null_with(a, names) for a in args)
        case Call() if SCALARS.find(expr.name, tuple(a.type for a in expr.args)).nulls == "strict":
            return any(is_null_with(a, names) for a in expr.args)
    return False


def rejects(expr: Expr, names: Collection[str]) -> bool:
    """Whether a predicate is surely not true in a row where all of the named columns are NULL."""
    match expr:
        case Literal():
            return expr.value is not True
        case Call("and", args):
            return any(rejects(a, names) for a in args)
        case Call("or", args):
            return all(rejects(a, names) for a in args)
        case (
            Call("is_not_null", (arg,))
            | Call("has_time" | "has_start", (arg, *_))
            | Call("not", (Call("is_null", (arg,)),))
        ):
            return is_null_with(arg, names)
        case Call("is_not_distinct_from", (a, b)):
            return any(
                is_null_with(x, names) and isinstance(y, Literal) and y.value is not None for x, y in ((a, b), (b, a))
            )
        case Case():
            return False
    return is_null_with(expr, names)


def never_null(expr: Expr, known: Collection[str]) -> bool:
    """Whether an expression has a value in every row, where the known columns have one."""
    match expr:
        case Column():
            return expr.name in known or not expr.nullable
        case Literal():
            return expr.value is not None
        case Cast():
            return not expr.safe and never_null(expr.arg, known)
        case InList():
            return all(never_null(e, known) for e in expr.children)
        case Case():
            return all(never_null(v, known) for _, v in expr.whens) and never_null(expr.otherwise, known)
        case Call("and", args):
            # Where a part is false the NULLs of others do not matter: x IS NOT NULL AND x = 1 has a value in every row.
            tested = {
                e.name
                for a in args
                if isinstance(a, Call) and a.name == "is_not_null"
                for e in a.args
                if isinstance(e, Column)
            }
            return all(never_null(a, tested.union(known)) for a in args)
        case Call("coalesce", args):
            return any(never_null(a, known) for a in args)
        case Call() if expr.name in _NEVER_NULL:
            return True
        case Call() if expr.name in _NULL_FROM_NULLS_ONLY:
            return all(never_null(a, known) for a in expr.args)
    return False
