"""The graph of pipelines: what it says of a plan is what runs. `explain pipelines` prints it and runs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.slt import records as slt
from tests.slt.engines import CONFIGS, Tsql
from tests.slt_runner import corpus_files
from tsql.backends.local.lower.local_step import LocalStep, local_step
from tsql.backends.local.run import execution
from tsql.backends.local.run.pipelines import Pipelines
from tsql.kernels.expr.errors import TsqlError
from tsql.planner.physical.operators import all_steps
from tsql.planner.physical.step import Step

EVERY = 4
FILES = [
    path for path in corpus_files() if path.parent.name in ("joins", "aggregates", "windows", "queries", "temporal")
]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """(graph, name of the pipeline) of everything that runs."""
    found: list[tuple[Any, str]] = []
    execute, run = execution.Execution._lower, Pipelines.run
    current: dict[int, Any] = {}

    def lowered(self: Any, *given: Any, **more: Any) -> Any:
        graph = execute(self, *given, **more)
        current[id(self.pipelines)] = graph
        return graph

    def noted(self: Any, step: Step, role: str, *given: Any, **more: Any) -> Any:
        found.append((current[id(self)], f"{step.name} {role}".strip()))
        return run(self, step, role, *given, **more)

    monkeypatch.setattr(execution.Execution, "_lower", lowered)
    monkeypatch.setattr(Pipelines, "run", noted)
    return found


@pytest.mark.parametrize("config", ["default", "spill", "shards_3"])
@pytest.mark.parametrize("path", FILES[::EVERY], ids=lambda path: path.stem)
def test_what_runs_is_declared(path: Path, config: str, ran: list[tuple[Any, str]]) -> None:
    """Every pipeline of every query of the corpus is one that the graph of its plan names."""
    engine = Tsql(CONFIGS[config])
    try:
        for number, record in enumerate(slt.read(path)):
            try:
                if record.kind == "load":
                    engine.load(record.argument)
                elif record.kind == "statement":
                    engine.execute(record.sql, record.params)
                elif record.kind == "query" and number % EVERY == 0:
                    engine.query(record.sql, record.params)
            except TsqlError:
                continue
    finally:
        engine.close()
    assert ran
    undeclared = {name for graph, name in ran if not graph.declares(name)}
    assert undeclared == set()


QUERY = """SELECT o.region, count(*) AS n FROM 'clicks.parquet' AS c JOIN orders AS o ON c.id = o.id
WHERE c.price > 2 GROUP BY o.region ORDER BY n DESC LIMIT 3"""


def test_explain_runs_nothing(tmp_path: Path, ran: list[tuple[Any, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [1, 2, 3], "price": [1, 2, 3]}), "clicks.parquet")
    db = tsql.connect(threads=2)
    db.register("orders", pa.table({"id": [1, 2], "region": ["a", "b"]}))
    text = db.sql(QUERY).explain("pipelines")
    assert ran == []
    paragraphs = [paragraph.splitlines() for paragraph in text.strip().split("\n\n")]
    assert [lines[0].split(":")[0] for lines in paragraphs][:1] == ["joined build"]
    assert any("- groups in an array, if " in line for lines in paragraphs for line in lines)
    assert any(line.strip().startswith("probe joined") for lines in paragraphs for line in lines)


def test_analyze_tells_which_way_was_taken() -> None:
    db = tsql.connect(threads=2)
    db.register("t", pa.table({"k": [1, 2, 1], "s": ["a", "b", "c"]}))
    assert "groups in an array" in db.sql("SELECT k, count(*) FROM t GROUP BY k").explain("analyze")
    assert "groups in a hash table" in db.sql("SELECT s, count(*) FROM t GROUP BY s").explain("analyze")


def test_every_step_is_run_by_a_class_of_its_own() -> None:
    """A step finds its class by its op."""
    kinds = [kind for op, kind in all_steps().items() if op not in ("input", "working")]
    assert len(kinds) > 20
    for kind in kinds:
        assert issubclass(local_step(kind), LocalStep), kind.op


SHARED = """plan version 1
target local shards=2

rows    = scan t columns=(k)
doubled = project rows d=(k * 2)
first   = filter doubled where=(d > 2)
second  = filter doubled where=(d < 5)
both    = union first second
all     = gather both
output all (d)
"""


def test_shared_rows_are_collected_once(ran: list[tuple[Any, str]]) -> None:
    """Two steps read the rows of a projection: one pipeline collects them, and both read what it has left."""
    db = tsql.connect(threads=2)
    db.register("t", pa.table({"k": [1, 2, 3]}))
    relation = tsql.load_plan_text(SHARED).run(db)
    text = relation.explain("pipelines")
    assert text.count("since its rows are read more than once") == 1
    assert text.count("rows of doubled") == 2
    assert sorted(relation.fetchall()) == [(2,), (4,), (4,), (6,)]
    assert [name for _, name in ran].count("doubled collect") == 1
