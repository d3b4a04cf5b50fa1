"""Makes a query of the campaign smaller while the engines still differ in the same way.

    python -m tests.fuzz.reduce --seed 2 --only 37 --kind wide

Parts of the syntax tree are left out or replaced by what is below them, then rows of the tables are. What is printed is
a start for a record in `tests/slt/regressions/`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp, parse_one

from tests.fuzz.campaign import KINDS, PARQUET, QUERIES_PER_SCHEMA, Schema, query_text
from tests.fuzz.schemas import Table, script
from tests.slt.engines import CONFIGS

CLAUSES = (
    "where",
    "having",
    "qualify",
    "distinct",
    "limit",
    "offset",
    "order",
    "group",
    "with_",
    "joins",
    "windows",
    "filter",
    "partition_by",
    "spec",
)


class Reducer:
    """One query under one configuration. `kind` is how the engines differ, without names and numbers."""

    def __init__(self, tables: list[Table], sql: str, config: str, seed: int):
        self.tables, self.sql, self.config, self.seed = tables, sql, config, seed
        found = self._difference(tables, sql)
        if found is None:
            raise SystemExit("the engines agree on this query")
        self.kind = _kind(found)

    def run(self) -> None:
        while self._smaller_query():
            pass
        self._smaller_tables()
        while self._smaller_query():
            pass

    def _difference(self, tables: list[Table], sql: str) -> str | None:
        with closing(Schema(self.seed, 0, self.config, tables=tables)) as schema:
            wanted = schema.expected(sql)
            reason = None if wanted is None else schema.compare(sql, wanted)
            return None if reason is None or schema.contradicts_itself(sql) else reason

    def _keeps(self, tables: list[Table], sql: str) -> bool:
        found = self._difference(tables, sql)
        return found is not None and _kind(found) == self.kind

    def _smaller_query(self) -> bool:
        """Whether some part could be left out; the largest parts are tried first."""
        candidates = {text for tree in _reductions(self.sql) if len(text := tree.sql(dialect="duckdb")) < len(self.sql)}
        for text in sorted(candidates, key=len):
            if self._keeps(self.tables, text):
                self.sql = text
                return True
        return False

    def _smaller_tables(self) -> None:
        named = [table for table in self.tables if re.search(rf"\b{table.name}\b", self.sql)]
        self.tables = named if self._keeps(named, self.sql) else self.tables
        for number in range(len(self.tables)):
            step = max(1, self.tables[number].data.num_rows // 2)
            while step:
                start = 0
                while start < self.tables[number].data.num_rows:
                    table = self.tables[number]
                    kept = [i for i in range(table.data.num_rows) if not start <= i < start + step]
                    fewer = [
                        *self.tables[:number],
                        replace(table, data=table.data.take(pa.array(kept, pa.int64()))),
                        *self.tables[number + 1 :],
                    ]
                    if self._keeps(fewer, self.sql):
                        self.tables = fewer
                    else:
                        start += step
                step //= 2


def _kind(reason: str) -> str:
    """The first words of a difference: what stays the same while the query shrinks."""
    return re.sub(r"[\d'\"\[].*", "", reason)[:60]


def _reductions(sql: str) -> Iterator[exp.Expression]:
    """Trees with one part less, by the numbers of their nodes."""
    size = sum(1 for _ in parse_one(sql, read="duckdb").walk())
    for number in range(size):
        for choice in range(12):
            tree = parse_one(sql, read="duckdb")
            node = next(n for i, n in enumerate(tree.walk()) if i == number)
            change = _change(node, choice)
            if change == "none":
                break
            if change == "root":
                continue
            yield tree


def _change(node: exp.Expression, choice: int) -> str:
    """Leave out a part of a node; "none" if it has no such part."""
    parts: list[tuple[str, object]] = [("drop", key) for key in CLAUSES if node.args.get(key)]
    if isinstance(node, exp.Select) and len(node.expressions) > 1:
        parts += [("item", i) for i in range(len(node.expressions))]
    parts += [("join", i) for i in range(len(node.args.get("joins") or [])) if len(node.args["joins"]) > 1]
    if isinstance(
        node,
        (
            exp.SetOperation,
            exp.Connector,
            exp.Binary,
            exp.Func,
            exp.Not,
            exp.Paren,
            exp.Case,
            exp.Window,
            exp.Filter,
            exp.Cast,
        ),
    ):
        parts += [
            ("child", child) for child in node.iter_expressions() if isinstance(child, (exp.Condition, exp.Query))
        ]
    if isinstance(node, (exp.Predicate, exp.In, exp.Exists, exp.Not)) and not isinstance(node, exp.Boolean):
        parts.append(("constant", exp.true()))
    if choice >= len(parts):
        return "none"
    what, which = parts[choice]
    if what == "drop":
        node.set(str(which), None)
    elif what in ("item", "join"):
        key = "expressions" if what == "item" else "joins"
        node.set(key, [part for i, part in enumerate(node.args[key]) if i != which])
    elif node.parent is None:
        return "root"
    else:
        node.replace(which)  # type: ignore[arg-type]
    return "done"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.reduce", description="A smaller query on which the engines differ."
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--only", type=int, required=True, help="the number of the query")
    parser.add_argument("--config", choices=sorted((*CONFIGS, PARQUET)), default="default")
    parser.add_argument("--kind", choices=sorted(set(KINDS) - {"changes"}), default="plain")
    given = parser.parse_args(arguments)
    with closing(Schema(given.seed, given.only // QUERIES_PER_SCHEMA, given.config)) as schema:
        tables = schema.tables
    reducer = Reducer(tables, query_text(given.seed, given.only, tables, given.kind), given.config, given.seed)
    reducer.run()
    print(f"{script(reducer.tables)}\n{reducer.sql};")
    return 0


if __name__ == "__main__":
    sys.exit(main())
