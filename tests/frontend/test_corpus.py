"""What the analyzer makes of the corpus of joins and subqueries, run by DuckDB: the plan, said in SQL again, gives the
rows, names and types of the query. This holds the front end alone to the oracle, without the rules and the executor."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.frontend.plan_sql import plan_sql
from tests.frontend.relations import wrong_names
from tests.slt import records as slt
from tests.slt.datasets import DATASETS
from tests.slt.engines import DuckDB
from tests.slt.render import Result, differing_row, render
from tests.slt.sampling import each
from tests.slt_runner import CORPUS
from tsql.analyze import kinds as statements
from tsql.analyze.statements import analyze
from tsql.catalog.catalog import Catalog, as_source
from tsql.grammar.dialect import Temporal
from tsql.grammar.generator import to_duckdb
from tsql.grammar.parser.statements import parse
from tsql.kernels.expr.errors import TsqlError
from tsql.planner.logical import nodes as logical

FILES = [path for folder in ("joins", "subqueries") for path in sorted((CORPUS / folder).glob("*.slt"))]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    tables = Catalog()
    for name, table in DATASETS.items():
        tables.add(name, as_source(name, table))
    return tables


class Oracle(DuckDB):
    """Keeps the answers: both tests ask for the rows of each query."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[str, Result] = {}

    def rendered(self, sql: str) -> Result:
        if sql not in self._answers:
            self._answers[sql] = render(self.query(sql))
        return self._answers[sql]


@pytest.fixture(scope="module")
def duck():
    engine = Oracle()
    for name in DATASETS:
        engine.load(name)
    yield engine
    engine.close()


@pytest.fixture
def records(pytestconfig: pytest.Config) -> Callable[[Path], list[slt.Record]]:
    """The records of a file: every second query, unless all are asked for. The engine runs all of them in
    `tests/test_slt.py`."""
    return lambda path: slt.read(path) if pytestconfig.getoption("--all-configurations") else each(slt.read(path), 2)


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def test_plans_mean_what_the_query_says(
    path: Path, catalog: Catalog, duck: Oracle, records: Callable[[Path], list[slt.Record]]
) -> None:
    checked = 0
    wrong = []
    for record in records(path):
        if record.kind not in ("query", "statement"):
            continue
        checked += 1
        problem = _refused(record, catalog, duck) if record.error is not None else _different(record, catalog, duck)
        if problem is not None:
            wrong.append(f"line {record.line}: {problem}\n    {record.sql}")
    assert not wrong, "\n" + "\n".join(wrong)
    assert checked >= 5


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def test_texts_read_back(path: Path, duck: Oracle, records: Callable[[Path], list[slt.Record]]) -> None:
    """Our text of a query reads back to an equal tree, and the oracle's text gives the same rows."""
    for record in records(path):
        if record.kind == "query":
            (first,) = parse(record.sql)
            (second,) = parse(Temporal().generate(first.node))
            assert second.node == first.node
            if record.oracle is None:
                given, expected = duck.rendered(to_duckdb(record.sql)), duck.rendered(record.sql)
                assert given.sorted("rowsort") == expected.sorted("rowsort"), record.sql


def _different(record: slt.Record, catalog: Catalog, duck: Oracle) -> str | None:
    try:
        (statement,) = analyze(record.sql, catalog)
    except TsqlError as error:
        return f"refused: {error.message}"
    assert isinstance(statement, statements.Query)
    theirs = duck.rendered(record.oracle or record.sql)
    if list(statement.plan.names) != theirs.names:
        return f"names {list(statement.plan.names)} instead of {theirs.names}"
    shared = wrong_names(statement.plan)
    if shared:
        return shared
    if any(isinstance(node, logical.Aggregate) and node.sets is not None for node in statement.plan.walk()):
        return None
    try:
        given = duck.query(plan_sql(statement.plan))
    except duckdb.Error as error:
        return f"the plan does not run: {str(error).splitlines()[0]}\n{logical.show(statement.plan)}"
    ours = render(given)
    if ours.types != theirs.types or [str(f.type) for f in statement.plan.schema] != theirs.types:
        return f"types {ours.types} instead of {theirs.types}"
    difference = differing_row(ours.sorted("rowsort"), theirs.sorted("rowsort"), theirs.types)
    return f"{difference}\n{logical.show(statement.plan)}" if difference else None


def _refused(record: slt.Record, catalog: Catalog, duck: Oracle) -> str | None:
    """An error of the analyzer has a place; one that only rows can show is that of the plan."""
    try:
        (statement,) = analyze(record.sql, catalog)
    except TsqlError as error:
        if not re.search(record.error or "", str(error), re.IGNORECASE):
            return f"another error: {error.message}"
        return None if error.line_column is not None else f"no place: {error.message}"
    assert isinstance(statement, statements.Query)
    try:
        duck.query(plan_sql(statement.plan))
    except duckdb.Error:
        return None
    return "accepted"
