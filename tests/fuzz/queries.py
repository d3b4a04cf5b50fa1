"""Hypothesis strategies for random single-table queries, as SQL text: filters, groups, DISTINCT, order, set operations,
nesting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.expressions import KINDS, MIXED, Columns, expression

GROUP_KINDS = ("int", "text", "bool", "date", "decimal")
SET_OPERATIONS = ("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")


@dataclass(frozen=True)
class Query:
    """A query, the kinds of its columns, and whether its rows come in a fixed order."""

    sql: str
    columns: Columns
    ordered: bool = False


@dataclass(frozen=True)
class Relation:
    """What stands in FROM; `key` names a column without duplicates, if there is one, to break ties."""

    sql: str
    columns: Columns
    key: str | None


TABLE = Relation("mixed", MIXED, "id")


@st.composite
def queries(draw: Any, nesting: int = 2) -> Query:
    """Any query."""
    shape = draw(st.sampled_from((_select, _grouped, _whole, _distinct, _set_operation)))
    return draw(shape(nesting))


@st.composite
def _relation(draw: Any, nesting: int) -> Relation:
    """The table, or a subquery in FROM or in WITH (the caller sees no difference)."""
    if nesting <= 0 or draw(st.integers(0, 2)) < 2:
        return TABLE
    inner = draw(queries(nesting - 1))
    return Relation(f"({inner.sql}) q", inner.columns, None)


@st.composite
def _where(draw: Any, columns: Columns) -> str:
    return f" WHERE {draw(expression('bool', columns, 2))}" if draw(st.booleans()) else ""


@st.composite
def _items(draw: Any, columns: Columns, kinds: tuple[str, ...] = KINDS) -> list[tuple[str, str]]:
    """One to three expressions with their kinds."""
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    return [(draw(expression(kind, columns, 2)), kind) for kind in chosen]


def _listed(items: list[tuple[str, str]]) -> tuple[str, Columns]:
    return ", ".join(f"{text} AS c{i}" for i, (text, _) in enumerate(items)), {
        f"c{i}": kind for i, (_, kind) in enumerate(items)
    }


@st.composite
def _select(draw: Any, nesting: int) -> Query:
    """Expressions of each row; with ORDER BY and LIMIT where ties can be broken."""
    relation = draw(_relation(nesting))
    listed, columns = _listed(draw(_items(relation.columns)))
    sql = f"SELECT {listed} FROM {relation.sql}{draw(_where(relation.columns))}"
    if relation.key is None or not draw(st.booleans()):
        return Query(sql, columns)
    terms = draw(st.lists(st.sampled_from([*columns, "s", "x", "b"]), min_size=1, max_size=2, unique=True))
    directions = [draw(st.sampled_from(("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))) for _ in terms]
    order = ", ".join(term + direction for term, direction in zip(terms, directions, strict=True))
    limit = draw(st.sampled_from(("", " LIMIT 5", " LIMIT 7 OFFSET 3", " LIMIT 0", " OFFSET 35")))
    return Query(f"{sql} ORDER BY {order}, {relation.key}{limit}", columns, ordered=True)


@st.composite
def _aggregate(draw: Any, columns: Columns) -> tuple[str, str]:
    """An aggregate whose value does not depend on the order of rows, with its kind."""
    kind = draw(st.sampled_from(("int", "text", "decimal", "date", "timestamp", "bool", "double")))
    value = draw(expression(kind, columns, 1))
    distinct = draw(st.sampled_from(("", "DISTINCT ")))
    forms = [(f"count({distinct}{value})", "int"), ("count(*)", "int")]
    if kind != "bool":
        forms += [(f"min({value})", kind), (f"max({value})", kind)]
    if kind == "int":
        forms += [
            (f"sum({distinct}{value})", "total"),
            (f"avg({value})", "mean"),
            (f"median({value})", "mean"),
            (f"quantile_disc({value}, 0.25)", "mean"),
        ]
    if kind == "decimal":
        forms += [(f"sum({value})", "total"), (f"avg({value})", "mean")]
    if kind == "bool":
        forms += [(f"bool_and({value})", "bool"), (f"bool_or({value})", "bool")]
    text, result = draw(st.sampled_from(forms))
    if draw(st.integers(0, 3)) == 0:
        text += f" FILTER (WHERE {draw(expression('bool', columns, 1))})"
    return text, result


@st.composite
def _aggregates(draw: Any, columns: Columns) -> list[tuple[str, str]]:
    return [draw(_aggregate(columns)) for _ in range(draw(st.integers(1, 3)))]


@st.composite
def _whole(draw: Any, nesting: int) -> Query:
    """Aggregates over all rows."""
    relation = draw(_relation(nesting))
    listed, columns = _listed(draw(_aggregates(relation.columns)))
    return Query(f"SELECT {listed} FROM {relation.sql}{draw(_where(relation.columns))}", columns)


@st.composite
def _grouped(draw: Any, nesting: int) -> Query:
    """Aggregates by groups, with HAVING, ROLLUP or CUBE at times."""
    relation = draw(_relation(nesting))
    keys = draw(_items(relation.columns, GROUP_KINDS))[:2]
    listed, columns = _listed(keys + draw(_aggregates(relation.columns)))
    # Ordinals: a name could mean a column of the relation, and a literal key would be an ordinal itself.
    ordinals = ", ".join(str(i + 1) for i in range(len(keys)))
    by = draw(st.sampled_from((ordinals, ordinals, "ALL", f"ROLLUP ({ordinals})", f"CUBE ({ordinals})")))
    sql = f"SELECT {listed} FROM {relation.sql}{draw(_where(relation.columns))} GROUP BY {by}"
    if draw(st.integers(0, 3)) == 0:
        sql += f" HAVING count(*) {draw(st.sampled_from(('>', '<=', '<>')))} {draw(st.integers(0, 4))}"
    return Query(sql, columns)


@st.composite
def _distinct(draw: Any, nesting: int) -> Query:
    relation = draw(_relation(nesting))
    listed, columns = _listed(draw(_items(relation.columns)))
    return Query(f"SELECT DISTINCT {listed} FROM {relation.sql}{draw(_where(relation.columns))}", columns)


@st.composite
def _set_operation(draw: Any, nesting: int) -> Query:
    """Two selects of the same kinds, so that their types meet."""
    left, right = draw(_relation(nesting - 1)), draw(_relation(nesting - 1))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    sides = []
    for relation in (left, right):
        listed, columns = _listed([(draw(expression(kind, relation.columns, 1)), kind) for kind in kinds])
        sides.append(f"SELECT {listed} FROM {relation.sql}{draw(_where(relation.columns))}")
    return Query(f"{sides[0]} {draw(st.sampled_from(SET_OPERATIONS))} {sides[1]}", columns)
