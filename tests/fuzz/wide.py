"""More kinds of random queries: window functions with all frames, QUALIFY, GROUPING SETS, DISTINCT ON, row values,
joins on ranges and USING, subqueries in more places. What they give does not depend on the order of rows.

A class of its own, so that the queries of `relational.Generator` stay what they were: a saved seed is a query.
"""

from __future__ import annotations

from sqlglot import parse_one

from tests.fuzz.relational import KEYS, Column, Generator, Relation, Scope, _listed, _meet

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
DIRECTIONS = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
EXCLUDES = ("", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS")
ENDS = ("UNBOUNDED PRECEDING", "{} PRECEDING", "CURRENT ROW", "{} FOLLOWING", "UNBOUNDED FOLLOWING")
PEERS = ("rank()", "dense_rank()")
TIED = "\0"
"""Stands before a call whose value depends on the order of rows that tie, until its SELECT is written."""


class WideGenerator(Generator):
    """Makes one query, with all that the plain generator has."""

    def query(self) -> str:
        """A whole query; at times its rows are ordered by all columns, so that their order is the same everywhere."""
        sql = super().query()
        if sql.startswith("WITH") or not self._chance(0.25):
            return sql
        columns = len(parse_one(sql, read="duckdb").selects)
        order = ", ".join(f"{i + 1}{self.rng.choice(DIRECTIONS)}" for i in range(columns))
        return f"SELECT * FROM ({sql}) ordered ORDER BY {order}"

    def _select(self, outer: list[Column], depth: int, kinds: list[str] | None = None) -> tuple[str, dict[str, str]]:
        shape = self.rng.random()
        if shape < 0.22:
            return self._windowed(outer, depth, kinds)
        if shape < 0.34 and kinds is None:
            return self._grouping_sets(outer, depth)
        if shape < 0.4:
            return self._distinct_on(outer, depth, kinds)
        return super()._select(outer, depth, kinds)

    def _windowed(self, outer: list[Column], depth: int, kinds: list[str] | None) -> tuple[str, dict[str, str]]:
        """Window functions beside values, perhaps with QUALIFY."""
        source, scope = self._from(outer, depth)
        wanted = kinds or [
            self.rng.choice(("int", "big", "big", "text", "date")) for _ in range(self.rng.randint(1, 3))
        ]
        items, tied = [], True
        for kind in wanted:
            call = self._window(kind, scope, tied) if self._chance(0.6) else self._value(kind, scope, depth)
            items.append(call)
            tied = tied and TIED not in call
        sql = f"SELECT {_listed(items)} FROM {source}{self._where(scope, depth)}"
        if self._chance(0.35):
            sql += (
                f" QUALIFY {self._window('big', scope, tied)} {self.rng.choice(COMPARISONS)} "
                f"{self.rng.choice((str(self.rng.randint(-1, 4)), self._value('int', scope, 0)))}"
            )
        return sql.replace(TIED, ""), {f"x{i}": kind for i, kind in enumerate(wanted)}

    def _window(self, kind: str, scope: Scope, tied: bool) -> str:
        """A call with OVER. Frames of ROWS, and functions of single rows, are ordered by all columns, so that rows that
        tie are equal. Only one call of a SELECT may be such (`tied`): two calls could give equal rows their values in
        different orders, and the combination is undefined."""
        rng, inner = self.rng, Scope(scope.columns, [])
        partition = (
            f"PARTITION BY {', '.join(self._value(rng.choice(KEYS), inner, 0) for _ in range(rng.choice((1, 1, 2))))} "
            if self._chance(0.55)
            else ""
        )
        first = self._value(rng.choice(KEYS), inner, 0) + rng.choice(DIRECTIONS)
        total = ", ".join([first, *(column.sql + rng.choice(DIRECTIONS) for column in scope.columns)])
        form = rng.choice(
            ("rows", "rows", "single", "groups", "range", "default") if tied else ("groups", "range", "default")
        )
        if form == "single":
            return TIED + self._of_single_rows(kind, inner, partition, total)
        call = (
            rng.choice(PEERS)
            if kind == "big" and form == "default" and self._chance(0.3)
            else self._aggregate(kind, inner, 0)
        )
        if form == "default":
            window = (
                f"({partition}{rng.choice((f'ORDER BY {first}', ''))})"
                if not call.startswith(PEERS)
                else f"({partition}ORDER BY {first})"
            )
        elif form == "rows":
            window = f"({partition}ORDER BY {total} ROWS {self._frame(('0', '1', '2', '7'))}{rng.choice(EXCLUDES)})"
        elif form == "groups":
            window = f"({partition}ORDER BY {first} GROUPS {self._frame(('0', '1', '2'))}{rng.choice(EXCLUDES)})"
        else:
            key, steps = rng.choice(
                (("int", ("0", "1", "3")), ("big", ("1", "2")), ("date", ("INTERVAL 1 DAY", "INTERVAL 3 DAYS")))
            )
            window = (
                f"({partition}ORDER BY {self._value(key, inner, 0)}{rng.choice(DIRECTIONS)} RANGE "
                f"{self._frame(steps)}{rng.choice(EXCLUDES)})"
            )
        cast = " AS BIGINT)" if call.startswith("CAST(") else ""
        return f"{TIED if form == 'rows' else ''}{call.removesuffix(cast)} OVER {window}{cast}"

    def _of_single_rows(self, kind: str, inner: Scope, partition: str, total: str) -> str:
        rng = self.rng
        if kind == "big" and self._chance(0.5):
            return (
                f"{rng.choice(('row_number()', 'ntile(3)', 'rank()', 'dense_rank()'))} OVER ({partition}ORDER "
                f"BY {total})"
            )
        value, other = self._value(kind, inner, 0), self._literal(kind)
        if self._chance(0.5):
            call = rng.choice(
                (
                    f"lag({value})",
                    f"lead({value}, 2)",
                    f"lag({value}, 1, {other})",
                    f"lead({value}, 1, {other} IGNORE NULLS)",
                )
            )
            return f"{call} OVER ({partition}ORDER BY {total})"
        call = rng.choice(
            (
                f"first_value({value})",
                f"last_value({value})",
                f"nth_value({value}, 2)",
                f"first_value({value} IGNORE NULLS)",
                f"last_value({value} IGNORE NULLS)",
            )
        )
        return f"{call} OVER ({partition}ORDER BY {total} ROWS {self._frame(('1', '2'))}{rng.choice(EXCLUDES)})"

    def _frame(self, steps: tuple[str, ...]) -> str:
        first = self.rng.randint(0, 3)
        last = self.rng.randint(max(first, 1), 4)
        return f"BETWEEN {ENDS[first].format(self.rng.choice(steps))} AND {ENDS[last].format(self.rng.choice(steps))}"

    def _grouping_sets(self, outer: list[Column], depth: int) -> tuple[str, dict[str, str]]:
        """Keys grouped in several ways at once. The keys are columns: DuckDB finds an expression of GROUP BY again by
        its text."""
        rng = self.rng
        source, scope = self._from(outer, depth)
        where = self._where(scope, depth)
        chosen = rng.sample(scope.columns, min(len(scope.columns), rng.choice((1, 2, 2, 3))))
        values = [rng.choice(("int", "big", "text", "date")) for _ in range(rng.randint(1, 2))]
        names = [column.sql for column in chosen]
        form = rng.choice(("ROLLUP", "CUBE", "SETS", "SETS", "ALL"))
        if form == "SETS":
            sets = [f"({', '.join(rng.sample(names, rng.randint(0, len(names))))})" for _ in range(rng.randint(1, 3))]
            grouping = f"GROUPING SETS ({', '.join([*sets, '(' + ', '.join(names) + ')'])})"
        else:
            grouping = form if form == "ALL" else f"{form} ({', '.join(names)})"
        items = [*names, *(self._aggregate(kind, scope, 0) for kind in values)]
        columns = {f"x{i}": kind for i, kind in enumerate([*(c.kind for c in chosen), *values])}
        if form != "ALL" and self._chance(0.4):
            items.append(f"grouping({', '.join(names)})")
            columns[f"x{len(items) - 1}"] = "big"
        having = (
            f" HAVING {self._aggregate('big', scope, 0)} {rng.choice(COMPARISONS)} {rng.randint(-1, 3)}"
            if self._chance(0.25)
            else ""
        )
        return f"SELECT {_listed(items)} FROM {source}{where} GROUP BY {grouping}{having}", columns

    def _distinct_on(self, outer: list[Column], depth: int, kinds: list[str] | None) -> tuple[str, dict[str, str]]:
        """The first row of each key, by an order that leaves no choice."""
        rng = self.rng
        source, scope = self._from(outer, depth)
        wanted = kinds or [rng.choice(KEYS) for _ in range(rng.randint(1, 3))]
        inner = Scope(scope.columns, [])
        items = [self._value(kind, inner, 0) for kind in wanted]
        keys = [column.sql for column in rng.sample(scope.columns, min(len(scope.columns), rng.choice((1, 1, 2))))]
        order = ", ".join(
            sql + rng.choice(DIRECTIONS) for sql in [*keys, *(c.sql for c in scope.columns if c.sql not in keys)]
        )
        sql = (
            f"SELECT DISTINCT ON ({', '.join(keys)}) {_listed(items)} FROM {source}{self._where(scope, depth)} "
            f"ORDER BY {order}"
        )
        return sql, {f"x{i}": kind for i, kind in enumerate(wanted)}

    def _aggregate(self, kind: str, scope: Scope, depth: int) -> str:
        if not self._chance(0.3):
            return super()._aggregate(kind, scope, depth)
        inner, rng = Scope(scope.columns, []), self.rng
        condition = f" FILTER (WHERE {self._condition(inner, 0)})" if self._chance(0.2) else ""
        number = self._value("int", inner, 0)
        match kind:
            case "big":
                return rng.choice(
                    (
                        f"CAST(sum(DISTINCT {number}){condition} AS BIGINT)",
                        f"count_if({self._condition(inner, 0)}){condition}",
                    )
                )
            case "int":
                return rng.choice(
                    (
                        f"quantile_disc({number}, 0.5){condition}",
                        f"bit_xor({number}){condition}",
                        f"max(DISTINCT {number}){condition}",
                    )
                )
            case "text":
                text = self._value("text", inner, 0)
                return rng.choice(
                    (
                        f"string_agg({text}, '|' ORDER BY {text} DESC){condition}",
                        f"string_agg(DISTINCT {text}, ',' ORDER BY {text}){condition}",
                    )
                )
        return super()._aggregate(kind, scope, depth)

    def _join(self, sql: str, columns: list[Column], outer: list[Column], depth: int) -> tuple[str, list[Column]]:
        """At times a join by USING: over one relation on the left, whose names cannot be ambiguous."""
        aliases = {column.sql.partition(".")[0] for column in columns}
        if len(aliases) == 1 and self._chance(0.12):
            right = self._relation([], depth - 1)
            kinds = {column.sql.partition(".")[2]: column.kind for column in columns}
            shared = [name for name, kind in right.columns.items() if name in kinds and _meet(kind, kinds[name])]
            if shared:
                kind = self.rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
                names = self.rng.sample(shared, self.rng.randint(1, len(shared)))
                kept = columns if kind in ("SEMI JOIN", "ANTI JOIN") else [*columns, *right.scope()]
                return f"{sql} {kind} {right.sql} USING ({', '.join(names)})", kept
        return super()._join(sql, columns, outer, depth)

    def _on(self, left: list[Column], right: list[Column], both: Scope) -> str:
        """At times a range with two bounds, with or without an equality."""
        if not self._chance(0.3):
            return super()._on(left, right, both)
        rng = self.rng
        sides = (left, right) if self._chance(0.5) else (right, left)
        pairs = [
            (a, [b for b in sides[1] if _meet(a.kind, b.kind)])
            for a in sides[0]
            if a.kind in ("int", "big", "date", "text", "dec")
        ]
        pairs = [(a, found) for a, found in pairs if found]
        if not pairs:
            return super()._on(left, right, both)
        a, found = rng.choice(pairs)
        low, high = rng.choice(found), rng.choice(found)
        step = {"int": "1", "big": "2", "dec": "0.25", "date": "INTERVAL 2 DAYS"}.get(low.kind)
        forms = [
            "{a} BETWEEN {low} AND {high}",
            "{a} >= {low} AND {a} < {high}",
            "{a} > {low}",
            "{a} NOT BETWEEN {low} AND {high}",
        ]
        if step is not None and a.kind == low.kind:
            forms += [
                f"{{a}} BETWEEN {{low}} AND {{low}} + {step}",
                f"{{a}} > {{low}} - {step} AND {{a}} <= {{low}} + {step}",
            ]
        condition = rng.choice(forms).format(a=a.sql, low=low.sql, high=high.sql)
        return f"{super()._on(left, right, both)} AND {condition}" if self._chance(0.4) else condition

    def _subquery_condition(self, scope: Scope, depth: int) -> str:
        """Row values and all comparisons with ANY and ALL, besides the plain forms."""
        rng, outer = self.rng, [*scope.outer, *scope.columns]
        form = rng.random()
        if form < 0.15:
            kinds = [rng.choice(KEYS) for _ in range(2)]
            values = ", ".join(self._value(kind, scope, 0) for kind in kinds)
            # DuckDB refuses outer columns here.
            return f"({values}) {rng.choice(('', 'NOT '))}IN ({self._select([], depth, kinds)[0]})"
        if form < 0.3:
            kind = rng.choice(KEYS)
            return (
                f"{self._value(kind, scope, 0)} {rng.choice(COMPARISONS)} {rng.choice(('ANY', 'ALL'))} "
                f"({self._select(outer, depth, [kind])[0]})"
            )
        if form < 0.4:
            kind = rng.choice(KEYS)
            return f"{self._value(kind, scope, 0)} {rng.choice(('', 'NOT '))}IN ({self._set_of(kind, outer, depth)})"
        return super()._subquery_condition(scope, depth)

    def _set_of(self, kind: str, outer: list[Column], depth: int) -> str:
        sides = [f"({self._select(outer, depth, [kind])[0]})" for _ in range(2)]
        return (
            f" {self.rng.choice(('UNION', 'UNION ALL', 'INTERSECT', 'INTERSECT ALL', 'EXCEPT', 'EXCEPT ALL'))} ".join(
                sides
            )
        )

    def _value(self, kind: str, scope: Scope, depth: int) -> str:
        """At times CASE, whose branches may hold subqueries."""
        if depth > 0 and self._chance(0.06):
            return (
                f"CASE WHEN {self._condition(scope, depth - 1, 1)} THEN "
                f"{super()._value(kind, scope, depth - 1)} ELSE {super()._value(kind, scope, 0)} END"
            )
        return super()._value(kind, scope, depth)

    def _relation(self, outer: list[Column], depth: int) -> Relation:
        """At times a recursive series, or rows made by UNNEST."""
        if self._chance(0.04):
            alias, low, high = self._alias(), self.rng.randint(-2, 1), self.rng.randint(1, 5)
            word = self.rng.choice(("UNION", "UNION ALL"))
            return Relation(
                (
                    f"(WITH RECURSIVE w(n) AS (SELECT CAST({low} AS INTEGER) {word} SELECT CAST(n + 1 AS "
                    f"INTEGER) FROM w WHERE n < {high}) SELECT n FROM w) {alias}"
                ),
                alias,
                {"n": "int"},
            )
        return super()._relation(outer, depth)
