"""Random queries over several tables, as SQL text: joins of all kinds, subqueries of all kinds at any depth, grouping,
set operations, CTEs, lateral relations. What they give does not depend on the order of rows.

Everything is drawn from one `random.Random`, so that a seed is a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.fuzz.schemas import Table

SETS = ("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
NUMBERS = ("int", "big", "dec")
KEYS = ("int", "int", "big", "text", "date")


@dataclass(frozen=True)
class Column:
    """A column in scope, as it is written, and its kind."""

    sql: str
    kind: str


@dataclass
class Scope:
    """The columns of a query's FROM, and those of the queries around it."""

    columns: list[Column] = field(default_factory=list)
    outer: list[Column] = field(default_factory=list)


@dataclass(frozen=True)
class Relation:
    """An item of FROM: its text with the alias, the alias, and its columns by name."""

    sql: str
    alias: str
    columns: dict[str, str]

    def scope(self) -> list[Column]:
        return [Column(f"{self.alias}.{name}", kind) for name, kind in self.columns.items()]


class Generator:
    """Makes one query. With `limits` a subquery that names outer columns may have any LIMIT, not only LIMIT 1."""

    def __init__(self, rng: Random, tables: list[Table], limits: bool = False):
        self.rng, self.tables, self.limits = rng, tables, limits
        self.ctes: list[tuple[str, dict[str, str]]] = []
        self.aliases = 0

    def query(self) -> str:
        """A whole query."""
        rng = self.rng
        parts = []
        for number in range(rng.choice((0, 0, 0, 1, 2))):
            sql, columns = self._select([], 2)
            parts.append(f"c{number} AS ({sql})")
            self.ctes.append((f"c{number}", columns))
        sql, _ = self._set_operation([], 3) if rng.random() < 0.15 else self._select([], 3)
        return f"WITH {', '.join(parts)} {sql}" if parts else sql

    def _alias(self) -> str:
        self.aliases += 1
        return f"r{self.aliases}"

    def _chance(self, part: float) -> bool:
        return self.rng.random() < part

    def _select(self, outer: list[Column], depth: int, kinds: list[str] | None = None) -> tuple[str, dict[str, str]]:
        """A SELECT and the kinds of its columns, which are `kinds` if given."""
        shape = self.rng.random()
        if shape < 0.35:
            return self._grouped(outer, depth, kinds)
        source, scope = self._from(outer, depth)
        wanted = kinds or [self.rng.choice(KEYS + ("dec", "bool")) for _ in range(self.rng.randint(1, 3))]
        items = [self._value(kind, scope, depth) for kind in wanted]
        distinct = "DISTINCT " if self._chance(0.15) else ""
        sql = f"SELECT {distinct}{_listed(items)} FROM {source}{self._where(scope, depth)}"
        if (self.limits or not outer) and self._chance(0.12):
            order = ", ".join(
                f"{i + 1}{self.rng.choice(('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}"
                for i in range(len(items))
            )
            sql += f" ORDER BY {order} LIMIT {self.rng.choice((0, 1, 3, 10))}" + (
                f" OFFSET {self.rng.randint(0, 3)}" if self._chance(0.3) else ""
            )
        return sql, {f"x{i}": kind for i, kind in enumerate(wanted)}

    def _grouped(self, outer: list[Column], depth: int, kinds: list[str] | None) -> tuple[str, dict[str, str]]:
        """Aggregates, mostly with keys."""
        source, scope = self._from(outer, depth)
        where = self._where(scope, depth)
        if kinds is None:
            keys = [self.rng.choice(KEYS) for _ in range(self.rng.choice((0, 1, 1, 2)))]
            values = [self.rng.choice(("int", "big", "text", "date")) for _ in range(self.rng.randint(1, 2))]
        else:
            keys, values = [], kinds
        items = [self._value(kind, Scope(scope.columns, []), 0) for kind in keys]
        calls = [self._aggregate(kind, scope, depth) for kind in values]
        sql = f"SELECT {_listed([*items, *calls])} FROM {source}{where}"
        if keys:
            sql += f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}"
            if self._chance(0.3):
                sql += (
                    f" HAVING {self._aggregate('big', scope, 0)} {self.rng.choice(('>', '<=', '<>'))} "
                    f"{self.rng.randint(-2, 3)}"
                )
        return sql, {f"x{i}": kind for i, kind in enumerate([*keys, *values])}

    def _aggregate(self, kind: str, scope: Scope, depth: int) -> str:
        """An aggregate of the kind, whose value does not depend on the order of rows."""
        inner = Scope(scope.columns, [])
        rng = self.rng
        condition = f" FILTER (WHERE {self._condition(inner, 0)})" if self._chance(0.2) else ""
        if kind == "big":
            form = rng.choice(("count(*)", "count({})", "count(DISTINCT {})", "sum({})"))
            if form == "sum({})":
                return f"CAST(sum({self._value('int', inner, 0)}){condition} AS BIGINT)"
            return form.format(self._value(rng.choice(KEYS), inner, 0)) + condition
        if kind == "bool":
            return f"{rng.choice(('bool_and', 'bool_or'))}({self._value('bool', inner, 0)}){condition}"
        return f"{rng.choice(('min', 'max'))}({self._value(kind, inner, 0)}){condition}"

    def _set_operation(self, outer: list[Column], depth: int) -> tuple[str, dict[str, str]]:
        kinds = [self.rng.choice(KEYS) for _ in range(self.rng.randint(1, 2))]
        sides = [self._select(outer, depth - 1, kinds)[0] for _ in range(self.rng.choice((2, 2, 3)))]
        sql = f"({sides[0]})"
        for side in sides[1:]:
            sql = f"{sql} {self.rng.choice(SETS)} ({side})"
        return sql, {f"x{i}": kind for i, kind in enumerate(kinds)}

    def _relation(self, outer: list[Column], depth: int) -> Relation:
        """One item of FROM, under an alias of its own."""
        rng, alias = self.rng, self._alias()
        choice = rng.random()
        if choice < 0.2 and depth > 0:
            make = self._set_operation if self._chance(0.25) else self._select
            sql, columns = make(outer, depth - 1)
            return Relation(f"({sql}) {alias}({', '.join(columns)})", alias, columns)
        if choice < 0.3 and self.ctes:
            name, columns = rng.choice(self.ctes)
            return Relation(f"{name} {alias}({', '.join(columns)})", alias, columns)
        if choice < 0.34:
            rows = ", ".join(
                (
                    f"({rng.choice(('NULL', str(rng.randint(-3, 3))))}, "
                    f"{rng.choice(('NULL', repr(rng.choice(('a', 'b')))))})"
                )
                for _ in range(rng.randint(1, 3))
            )
            return Relation(
                f"(SELECT CAST(p AS INTEGER) AS a, CAST(q AS VARCHAR) AS b FROM (VALUES {rows}) v(p, q)) {alias}",
                alias,
                {"a": "int", "b": "text"},
            )
        if choice < 0.37:
            bound = (
                rng.choice([c.sql for c in outer if c.kind in ("int", "big")] or ["3"])
                if self._chance(0.5)
                else str(rng.randint(0, 4))
            )
            return Relation(f"range({bound}) {alias}(n)", alias, {"n": "big"})
        table = rng.choice(self.tables)
        return Relation(f"{table.name} {alias}", alias, dict(table.columns))

    def _from(self, outer: list[Column], depth: int) -> tuple[str, Scope]:
        first = self._relation(outer, depth)
        sql, columns = first.sql, first.scope()
        for _ in range(self.rng.choice((0, 0, 1, 1, 2)) if depth > 0 else self.rng.choice((0, 0, 0, 1))):
            sql, columns = self._join(sql, columns, outer, depth)
        return sql, Scope(columns, outer)

    def _join(self, sql: str, columns: list[Column], outer: list[Column], depth: int) -> tuple[str, list[Column]]:
        rng = self.rng
        kind = rng.choice(
            (
                "JOIN",
                "JOIN",
                "LEFT JOIN",
                "LEFT JOIN",
                "RIGHT JOIN",
                "FULL JOIN",
                "CROSS JOIN",
                "SEMI JOIN",
                "ANTI JOIN",
                "LATERAL",
            )
        )
        if kind == "LATERAL":
            alias = self._alias()
            inner, found = self._select([*outer, *columns], max(0, depth - 1))
            word, end = rng.choice(
                ((", LATERAL", ""), (" JOIN LATERAL", " ON true"), (" LEFT JOIN LATERAL", " ON true"))
            )
            if word.startswith(","):
                word = " CROSS JOIN LATERAL"
            return f"{sql}{word} ({inner}) {alias}({', '.join(found)}){end}", [
                *columns,
                *(Column(f"{alias}.{n}", k) for n, k in found.items()),
            ]
        right = self._relation([], depth - 1)
        if kind == "CROSS JOIN":
            return f"{sql} CROSS JOIN {right.sql}", [*columns, *right.scope()]
        both = Scope([*columns, *right.scope()], [])
        condition = self._on(columns, right.scope(), both)
        kept = columns if kind in ("SEMI JOIN", "ANTI JOIN") else both.columns
        return f"{sql} {kind} {right.sql} ON {condition}", kept

    def _on(self, left: list[Column], right: list[Column], both: Scope) -> str:
        """Mostly an equality of the two sides, and perhaps more."""
        rng = self.rng
        pairs = [(a, b) for a in left for b in right if _meet(a.kind, b.kind)]
        parts = []
        if pairs and self._chance(0.85):
            a, b = rng.choice(pairs)
            parts.append(f"{a.sql} {'IS NOT DISTINCT FROM' if self._chance(0.1) else '='} {b.sql}")
            if self._chance(0.2):
                a, b = rng.choice(pairs)
                parts.append(f"{a.sql} {rng.choice(('=', '<', '>=', '<>'))} {b.sql}")
        if not parts or self._chance(0.25):
            parts.append(self._condition(both, 0))
        return " AND ".join(parts)

    def _where(self, scope: Scope, depth: int) -> str:
        return f" WHERE {self._condition(scope, depth)}" if self._chance(0.6) else ""

    def _condition(self, scope: Scope, depth: int, nesting: int = 2) -> str:
        """A condition; with `depth` it may hold subqueries."""
        rng, choice = self.rng, self.rng.random()
        if nesting > 0 and choice < 0.25:
            parts = [self._condition(scope, depth, nesting - 1) for _ in range(2)]
            return f"({parts[0]} {rng.choice(('AND', 'OR'))} {parts[1]})"
        if nesting > 0 and choice < 0.32:
            return f"NOT ({self._condition(scope, depth, nesting - 1)})"
        if depth > 0 and choice < 0.6:
            return self._subquery_condition(scope, depth - 1)
        kind = rng.choice(KEYS)
        value = self._value(kind, scope, 0)
        form = rng.choice(("compare", "compare", "compare", "null", "list", "between", "bool"))
        if form == "null":
            return f"{value} IS {rng.choice(('', 'NOT '))}NULL"
        if form == "list":
            return (
                f"{value} {rng.choice(('', 'NOT '))}IN "
                f"({', '.join(self._literal(kind) for _ in range(rng.randint(1, 3)))})"
            )
        if form == "between":
            return f"{value} BETWEEN {self._literal(kind)} AND {self._value(kind, scope, 0)}"
        if form == "bool":
            return self._value("bool", scope, 0)
        return f"{value} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {self._value(kind, scope, 0)}"

    def _subquery_condition(self, scope: Scope, depth: int) -> str:
        rng, outer = self.rng, [*scope.outer, *scope.columns]
        form = rng.choice(("exists", "exists", "in", "in", "any", "scalar"))
        if form == "exists":
            return f"{rng.choice(('', 'NOT '))}EXISTS ({self._select(outer, depth)[0]})"
        kind = rng.choice(KEYS)
        value = self._value(kind, scope, 0)
        if form == "in":
            return f"{value} {rng.choice(('', 'NOT '))}IN ({self._select(outer, depth, [kind])[0]})"
        if form == "any":
            return (
                f"{value} {rng.choice(('=', '<>', '<', '>='))} {rng.choice(('ANY', 'ALL'))} "
                f"({self._select(outer, depth, [kind])[0]})"
            )
        return f"{value} {rng.choice(('=', '<', '>', '<>'))} {self._scalar(kind, outer, depth)}"

    def _scalar(self, kind: str, outer: list[Column], depth: int) -> str:
        """A scalar subquery with one row at most."""
        scope_from, scope = self._from(outer, depth)
        where = self._where(scope, depth)
        if self._chance(0.7):
            return f"(SELECT {self._aggregate(kind, scope, 0)} FROM {scope_from}{where})"
        value = self._value(kind, Scope(scope.columns, []), 0)
        return (
            f"(SELECT {value} FROM {scope_from}{where} ORDER BY 1 "
            f"{self.rng.choice(('NULLS FIRST', 'DESC NULLS LAST', 'NULLS LAST'))} LIMIT 1)"
        )

    def _value(self, kind: str, scope: Scope, depth: int) -> str:
        """An expression of a kind. Outer columns come at times; with `depth` subqueries do too."""
        rng = self.rng
        if depth > 0 and kind in ("int", "text", "date", "big") and self._chance(0.12):
            return self._scalar(kind, [*scope.outer, *scope.columns], depth - 1)
        pool = scope.outer if scope.outer and self._chance(0.25) else scope.columns
        fitting = [c.sql for c in pool if c.kind == kind] or [c.sql for c in scope.columns if c.kind == kind]
        if not fitting or self._chance(0.08):
            return self._made(kind, scope)
        column = rng.choice(fitting)
        if self._chance(0.7):
            return column
        match kind:
            case "int":
                return (
                    rng.choice(("{} + 1", "-{}", "{} % 3", "abs({})", "coalesce({}, 0)", "nullif({}, 1)", "{} * 2"))
                    .join(("(", ")"))
                    .format(column)
                )
            case "big":
                return rng.choice(("({} + 1)", "coalesce({}, 0)", "abs({})")).format(column)
            case "text":
                return rng.choice(("upper({})", "coalesce({}, 'z')", "({} || 'x')", "nullif({}, 'a')")).format(column)
            case "bool":
                return rng.choice(("(NOT {})", "coalesce({}, true)")).format(column)
            case "date":
                return rng.choice(("coalesce({}, DATE '2024-01-02')", "CAST({} + INTERVAL 1 DAY AS DATE)")).format(
                    column
                )
        return f"({column} + 1.25)::DECIMAL(9, 2)"

    def _made(self, kind: str, scope: Scope) -> str:
        """A value of a kind that no column has: from another kind, or a literal."""
        numbers = [c.sql for c in scope.columns if c.kind == "int"]
        if kind == "big" and numbers:
            return f"CAST({self.rng.choice(numbers)} AS BIGINT)"
        if kind == "bool" and numbers:
            return f"({self.rng.choice(numbers)} > {self.rng.randint(-2, 2)})"
        if kind == "text" and numbers:
            return f"CAST({self.rng.choice(numbers)} AS VARCHAR)"
        return self._literal(kind)

    def _literal(self, kind: str) -> str:
        rng = self.rng
        if self._chance(0.05):
            types = dict(int="INTEGER", big="BIGINT", text="VARCHAR", date="DATE", bool="BOOLEAN", dec="DECIMAL(9, 2)")
            return f"CAST(NULL AS {types[kind]})"
        match kind:
            case "int":
                return f"CAST({rng.randint(-4, 5)} AS INTEGER)"
            case "big":
                return f"CAST({rng.randint(-4, 5)} AS BIGINT)"
            case "text":
                return repr(rng.choice(("a", "b", "ab", "zz")))
            case "date":
                return f"DATE '2024-01-0{rng.randint(1, 5)}'"
            case "bool":
                return rng.choice(("true", "false"))
        return f"CAST({rng.randint(-40, 40) / 4} AS DECIMAL(9, 2))"


def _meet(a: str, b: str) -> bool:
    """Whether columns of two kinds are compared without a cast that loses something."""
    return a == b or {a, b} <= {"int", "big"}


def _listed(items: list[str]) -> str:
    return ", ".join(f"{text} AS x{i}" for i, text in enumerate(items))
