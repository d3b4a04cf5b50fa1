"""Random statements that change a table: INSERT .. SELECT, UPDATE [.. FROM], DELETE [.. USING], with subqueries of all
kinds.

A text has the statement, and behind it a query over the changed table. What a statement does never depends on the order
of rows: the values of SET are of the target alone, or of a relation in which a key is found once."""

from __future__ import annotations

from random import Random

from tests.fuzz.relational import Column, Scope
from tests.fuzz.schemas import Table
from tests.fuzz.wide import WideGenerator

SEPARATOR = ";\n"


class ChangeGenerator(WideGenerator):
    """Makes one statement, and a query that shows what it did."""

    def __init__(self, rng: Random, tables: list[Table], limits: bool = False):
        super().__init__(rng, tables, limits)
        self.target = rng.choice(tables)

    def query(self) -> str:
        change = self.rng.choice(
            (self._insert, self._update, self._update, self._update_from, self._delete, self._delete_using)
        )()
        return f"{change}{SEPARATOR}SELECT * FROM {self.target.name}"

    def _scope(self) -> Scope:
        """The columns of the target, which is called `o`."""
        return Scope([Column(f"o.{name}", kind) for name, kind in self.target.columns.items()], [])

    def _insert(self) -> str:
        names = self.rng.sample(list(self.target.columns), self.rng.randint(1, len(self.target.columns)))
        kinds = [self.target.columns[name] for name in names]
        sql, _ = self._set_of_kinds(kinds) if self._chance(0.2) else self._select([], 2, kinds)
        return f"INSERT INTO {self.target.name} ({', '.join(names)}) {sql}"

    def _set_of_kinds(self, kinds: list[str]) -> tuple[str, dict[str, str]]:
        sides = [f"({self._select([], 1, kinds)[0]})" for _ in range(2)]
        return f" {self.rng.choice(('UNION', 'UNION ALL', 'EXCEPT'))} ".join(sides), {}

    def _assignments(self, scope: Scope, depth: int) -> str:
        names = self.rng.sample(list(self.target.columns), self.rng.randint(1, min(2, len(self.target.columns))))
        return ", ".join(f"{name} = {self._value(self.target.columns[name], scope, depth)}" for name in names)

    def _update(self) -> str:
        scope = self._scope()
        return f"UPDATE {self.target.name} AS o SET {self._assignments(scope, 2)}{self._where(scope, 2)}"

    def _update_from(self) -> str:
        """With a relation that has each key once, or one that only decides which rows are changed."""
        scope, rng = self._scope(), self.rng
        if self._chance(0.5):
            right = self._relation([], 2)
            return (
                f"UPDATE {self.target.name} AS o SET {self._assignments(scope, 1)} FROM {right.sql} WHERE "
                f"{self._on(scope.columns, right.scope(), Scope([*scope.columns, *right.scope()], []))}"
            )
        name = rng.choice(list(self.target.columns))
        kind = self.target.columns[name]
        source, inner = self._from([], 1)
        key = self._value("int", Scope(inner.columns, []), 0)
        keyed = f"(SELECT {key} AS g, {self._aggregate(kind, inner, 0)} AS m FROM {source} GROUP BY 1) k"
        return (
            f"UPDATE {self.target.name} AS o SET {name} = k.m FROM {keyed} WHERE o.a "
            f"{rng.choice(('=', 'IS NOT DISTINCT FROM'))} k.g"
        )

    def _delete(self) -> str:
        return f"DELETE FROM {self.target.name} AS o WHERE {self._condition(self._scope(), 2)}"

    def _delete_using(self) -> str:
        scope, rng = self._scope(), self.rng
        using, columns = [], []
        for _ in range(rng.choice((1, 1, 2))):
            sql, inner = self._from([], 1)
            using.append(sql)
            columns += inner.columns
        both = Scope([*scope.columns, *columns], [])
        more = f" AND {self._condition(both, 1)}" if self._chance(0.4) else ""
        return (
            f"DELETE FROM {self.target.name} AS o USING {', '.join(using)} WHERE "
            f"{self._on(scope.columns, columns, both)}{more}"
        )
