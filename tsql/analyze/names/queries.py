"""The text of subqueries in the names of result columns, as DuckDB writes it: `(SELECT max(x) FROM a)`.

A mixin of `analyze_names.Namer`, which prints the expressions. Omitted words are added (INNER, AS), joins are in
parentheses, VALUES is a separate query, LATERAL is not shown.
"""

from __future__ import annotations

from itertools import combinations

from sqlglot import exp

from tsql.analyze.from_ import is_comma
from tsql.grammar.time.match_nodes import RowMatch
from tsql.grammar.time.nodes import TimeFunction
from tsql.kernels.expr.keywords import KEYWORDS
from tsql.planner.bind.subquery import QUERIES, listed_query

_SETS = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class QueryNames:
    """Prints queries; `show` prints expressions."""

    def show(self, node: exp.Expr) -> str:
        raise NotImplementedError

    def _ordered(self, node: exp.Ordered) -> str:
        raise NotImplementedError

    def _subquery(self, node: exp.Expr) -> str:
        return f"({self.query(node)})"

    _select = _union = _intersect = _except = _values = _subquery

    def _exists(self, node: exp.Exists) -> str:
        return f"EXISTS({self.query(node.this)})"

    def _any(self, node: exp.Any) -> str:
        return f"ANY({self.query(node.this)})"

    def _tuple(self, node: exp.Tuple) -> str:
        values = ", ".join(map(self.show, node.expressions))
        return f'"row"({values})'

    def in_query(self, node: exp.In) -> str:
        """`x IN (SELECT ..)`."""
        return f"({self.show(node.this)} = ANY({self.query(listed_query(node))}))"

    def compared_with_all(self, left: str, operator: str, node: exp.All) -> str:
        """`x > ALL (SELECT ..)`."""
        return f"(NOT ({left} {_OPPOSITE.get(operator, operator)} ANY({self.query(node.this)})))"

    def query(self, node: exp.Expr) -> str:
        """A query, without parentheses around it."""
        match node:
            case exp.Subquery():
                inner = self.query(node.this)
                rest = self._rest(node)
                return f"({inner}){rest}" if rest else inner
            case exp.Values():
                rows = ", ".join(f"({', '.join(map(self.show, self._row(row)))})" for row in node.expressions)
                text = f"SELECT * FROM (VALUES {rows}) AS valueslist"
            case exp.SetOperation():
                kind = (
                    _SETS[type(node)]
                    + ("" if node.args.get("distinct") else " ALL")
                    + (" BY NAME" if node.args.get("by_name") else "")
                )
                text = f"({self.query(node.this)}) {kind} ({self.query(node.expression)})"
            case _:
                text = self._select_text(node)
        return self._with(node) + text + self._rest(node)

    def _row(self, row: exp.Expr) -> list[exp.Expr]:
        return row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]

    def _with(self, node: exp.Expr) -> str:
        clause = node.args.get("with_")
        if clause is None:
            return ""
        parts = []
        for cte in clause.expressions:
            columns = cte.args["alias"].args.get("columns") or []
            materialized = {None: "", True: "MATERIALIZED ", False: "NOT MATERIALIZED "}[cte.args.get("materialized")]
            names = f" ({', '.join(_name(c.name) for c in columns)})" if columns else ""
            parts.append(f"{_name(cte.alias)}{names} AS {materialized}({self.query(cte.this)})")
        return f"WITH {'RECURSIVE ' if clause.args.get('recursive') else ''}{', '.join(parts)} "

    def _select_text(self, node: exp.Expr) -> str:
        distinct = node.args.get("distinct")
        on = distinct.args.get("on") if distinct is not None else None
        words = "SELECT "
        if distinct is not None:
            words += "DISTINCT "
        if on is not None:
            words += f"ON ({', '.join(map(self.show, on.expressions if isinstance(on, exp.Tuple) else [on]))}) "
        text = words + ", ".join(map(self._item, node.expressions))
        source = node.args.get("from_")
        if source is not None:
            text += f" FROM {self._from(source.this, node.args.get('joins') or [])}"
        for key, word in (("where", "WHERE"), ("group", "GROUP BY"), ("having", "HAVING"), ("qualify", "QUALIFY")):
            part = node.args.get(key)
            if part is not None:
                text += f" {word} {self._group(part) if key == 'group' else self.show(part.this)}"
        return text

    def _item(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Alias):
            return f"{self.show(node.this)} AS {_name(node.alias)}"
        if isinstance(node, exp.Star):
            return self._star_text("*", node)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            return self._star_text(".".join(_name(p.name) for p in node.parts[:-1]) + ".*", node.this)
        return self.show(node)

    def _star_text(self, text: str, star: exp.Star) -> str:
        for key, word in (("except_", "EXCLUDE"), ("replace", "REPLACE"), ("rename", "RENAME")):
            parts = star.args.get(key) or []
            if parts:
                listed = parts if isinstance(parts, list) else [parts]
                text += (
                    f" {word} "
                    f"({', '.join(self._item(p) if isinstance(p, exp.Alias) else _name(p.name) for p in listed)})"
                )
        return text

    def _group(self, group: exp.Group) -> str:
        if group.args.get("all"):
            return "ALL"
        sets: list[list[exp.Expr]] = [[]]
        for element in group.expressions:
            sets = [[*a, *b] for a in sets for b in self._sets(element)]
        if not any(isinstance(e, (exp.Rollup, exp.Cube, exp.GroupingSets)) for e in group.expressions):
            return ", ".join(map(self.show, sets[0])) or "()"
        listed = [", ".join(map(self.show, one)) for one in sets]
        return f"GROUPING SETS ({','.join(f'({one})' for one in listed)})"

    def _sets(self, element: exp.Expr) -> list[list[exp.Expr]]:
        match element:
            case exp.Rollup():
                parts = [self._sets(part)[0] for part in element.expressions]
                return [[e for part in parts[:count] for e in part] for count in range(len(parts) + 1)]
            case exp.Cube():
                parts = [self._sets(part)[0] for part in element.expressions]
                chosen = [c for count in range(len(parts) + 1) for c in combinations(range(len(parts)), count)]
                return [[e for index in c for e in parts[index]] for c in sorted(chosen)]
            case exp.GroupingSets():
                return [one for part in element.expressions for one in self._sets(part)]
            case exp.Tuple():
                return [element.expressions]
            case exp.Paren():
                return [[element.this]]
        return [[element]]

    def _rest(self, node: exp.Expr) -> str:
        text = ""
        order, limit, offset = (node.args.get(key) for key in ("order", "limit", "offset"))
        if order is not None:
            text += " ORDER BY " + ", ".join(map(self._sort_key, order.expressions))
        if limit is not None:
            count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
            text += f" LIMIT {self.show(count)}"
        if offset is not None:
            text += f" OFFSET {self.show(offset.expression)}"
        return text

    def _sort_key(self, node: exp.Ordered) -> str:
        text = self._ordered(node)
        is_all = isinstance(node.this, (exp.Column, exp.Var)) and node.this.name.upper() == "ALL"
        return f"COLUMNS(*){text[len('ALL') :]}" if is_all else text

    def _from(self, first: exp.Expr, joins: list[exp.Join]) -> str:
        parts = [self._table(first)]
        for join in joins:
            if is_comma(join):
                parts.append(self._table(join.this))
            else:
                parts[-1] = self._join(parts[-1], join)
        return " , ".join(parts)

    def _join(self, left: str, join: exp.Join) -> str:
        method, side, kind = (join.args.get(k) or "" for k in ("method", "side", "kind"))
        words = [method, side or (kind if kind in ("CROSS", "SEMI", "ANTI") else "INNER"), "JOIN"]
        text = (
            f"({left} {' '.join(w for w in words if w and not (w == 'INNER' and method == 'POSITIONAL'))} "
            f"{self._table(join.this)}"
        )
        if join.args.get("on") is not None:
            text += f" ON ({self.show(join.args['on'])})"
        if join.args.get("using"):
            text += f" USING ({', '.join(_name(c.name) for c in join.args['using'])})"
        return text + ")"

    def _table(self, node: exp.Expr) -> str:
        nested = node.args.get("joins")
        alias = node.args.get("alias")
        inner = node.this
        match node:
            case exp.Subquery() if isinstance(inner, exp.Table) or (
                isinstance(inner, exp.Subquery) and inner.args.get("joins")
            ):
                text = self._table(inner)
                text = f"(SELECT * FROM {text})" if alias is not None else text
            case exp.Lateral() | exp.Subquery():
                bare = isinstance(inner, QUERIES) and isinstance(node, exp.Lateral)
                text = f"({self.query(inner if bare else _without_alias(node))})"
            case exp.Values():
                text = f"({self.query(_without_alias(node))})"
            case exp.Table() if isinstance(inner, exp.Identifier):
                text = ".".join(_name(part.name) for part in node.parts)
            case exp.Table() if isinstance(inner, (RowMatch, TimeFunction)):
                from tsql.grammar.dialect import Temporal

                text = Temporal().generate(inner)
            case exp.Table():
                text = self.show(inner)
            case _:
                text = self.show(node)
        if alias is not None:
            columns = alias.args.get("columns") or []
            text += f" AS {_name(alias.name)}" + (f"({', '.join(_name(c.name) for c in columns)})" if columns else "")
        for join in nested or []:
            text = self._join(text, join)
        return text


def _without_alias(node: exp.Expr) -> exp.Expr:
    bare = node.copy()
    bare.set("alias", None)
    bare.set("joins", None)
    return bare


def _name(name: str) -> str:
    plain = name.isidentifier() and name.isascii() and name.lower() not in KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'
