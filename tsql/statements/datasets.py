"""CREATE TABLE .. WITH (target = 'spark') AS ..: keeps the rows of a query in the cluster, under a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsql.analyze import kinds as statements
from tsql.backends.io import ColumnStatistics, Statistics
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.schema import Schema
from tsql.relation import Relation
from tsql.statements.changes import counted, done
from tsql.statements.named import stored_value

if TYPE_CHECKING:
    from tsql.backends.datasets import KeptDataset
    from tsql.statements.perform import StatementContext

_KEPT = "#kept"


def keep(context: StatementContext, statement: statements.KeepDataset) -> Relation:
    """Compute a dataset in the cluster and give it its name."""
    if _is_taken(context, statement):
        return done()
    made: list[KeptDataset] = []
    queries = context.scripts.queries

    def begin(sinks: Any, plan: Any, run: Any) -> int:
        made.append(sinks.keep(plan, run, statement.name))
        return 0

    queries.into(context.prepared(statement.query), context.values, begin).fetchall()
    (dataset,) = made
    try:
        relation, known = _statistics(context, dataset)
        dataset.complete(known)
        sinks = context.catalog.sinks()
        assert sinks is not None
        sinks.datasets().add(dataset, statement.replace)
    except BaseException:
        dataset.drop()
        raise
    context.scripts.plans.clear()
    return counted(known.rows or 0).tell(relation.notes)


def _is_taken(context: StatementContext, statement: statements.KeepDataset) -> bool:
    """Whether there is nothing to do, because the name is taken and the statement allows that."""
    there = context.catalog.entry(statement.name)
    if there is None:
        return False
    if statement.if_not_exists:
        return True
    if context.catalog.dataset(statement.name) is None:
        raise CatalogError(
            f'"{statement.name}" exists in this session already, and not in the cluster',
            hint="give the dataset another name",
        )
    if not statement.replace:
        raise CatalogError(
            f'Table with name "{statement.name}" already exists', hint="use CREATE OR REPLACE, or IF NOT EXISTS"
        )
    return False


def _statistics(context: StatementContext, dataset: KeptDataset) -> tuple[Relation, Statistics]:
    """What one query over the rows finds out. It is the first to read them, so it is what computes them."""
    from tsql.analyze.changes import Overlay
    from tsql.analyze.statements import Analyzer
    from tsql.grammar.parser.statements import parse

    text = f'SELECT {", ".join(_items(dataset.schema))} FROM "{_KEPT}"'
    (parsed,) = parse(text)
    overlay = Overlay(context.catalog, **{_KEPT: dataset})
    query = Analyzer(parsed, overlay, None).query(parsed.node, text)
    relation = context.scripts.queries.relation(context.prepared(query), {})
    with context.scripts.session.watch(lambda: relation.progress):
        row = [column[0] for column in relation.arrow().columns]
    values = [stored_value(value, kind) for value, kind in zip(row, relation.sql_types, strict=True)]
    rows, columns = values[0], {}
    for place, column in enumerate(dataset.schema):
        present, low, high, distinct = values[1 + 4 * place : 5 + 4 * place]
        # No NULLs among these rows is no promise for rows that are computed again.
        nulls = rows - present or None
        columns[column.name] = ColumnStatistics(low, high, nulls, distinct)
    return relation, Statistics(rows, None, columns)


def _items(schema: Schema) -> list[str]:
    items = ["count(*) AS s"]
    for place, column in enumerate(schema):
        name = quote(column.name)
        wide = column.type.name in ("INTERVAL", "BLOB")
        items += [
            f"count({name}) AS n{place}",
            *((f"NULL AS l{place}", f"NULL AS h{place}", f"NULL AS d{place}") if wide else ()),
            *(
                ()
                if wide
                else (
                    f"min({name}) AS l{place}",
                    f"max({name}) AS h{place}",
                    f"approx_count_distinct({name}) AS d{place}",
                )
            ),
        ]
    return items
