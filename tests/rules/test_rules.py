"""The rewrite rules, one fixture file each: `<rule>.test` holds queries with the logical plan before and after the
rule.

A record is comment lines, the SQL, then `---- before` and `---- after` with plans. A comment `# with <rules>` names
rules that run first, because this one builds on them. Where the rule has nothing to say the plan after is
`(unchanged)`, and the comment says why. `pytest --regen` rewrites the plans. Each query must also give the same rows
with the rule, without it and in DuckDB.

A record without SQL starts from the plan that it states (`tests/planner/plantext.py` reads it, over `tables.py`), and
its rows are those of `tests/planner/reference.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.planner.plantext import read_plan
from tests.planner.reference import rows_of as reference_rows
from tests.planner.support import assert_same_rows, blocks_of, is_ordered, logical_plan, oracle, run_plan, session
from tests.rules.tables import TABLES
from tsql.backends import Settings
from tsql.grammar.generator import to_duckdb
from tsql.planner import make_plan
from tsql.planner.logical.nodes import Join, show
from tsql.planner.logical.predicates import conjuncts
from tsql.planner.logical.tree import nodes
from tsql.planner.rules import RULES, optimize, without_products

FOLDER = Path(__file__).parent
NAMED = {rule.name: rule for rule in RULES}


@dataclass
class Record:
    """One query of a fixture file."""

    rule: str
    comments: list[str]
    sql: str
    before: str
    after: str

    @property
    def first(self) -> list[str]:
        return [
            name for line in self.comments if line.startswith("# with ") for name in line[7:].replace(",", " ").split()
        ]

    def text(self) -> str:
        return "\n".join(
            [*self.comments, *([self.sql] if self.sql else []), "---- before", self.before, "---- after", self.after]
        )


def read(rule: str) -> list[Record]:
    records = []
    for block in blocks_of((FOLDER / f"{rule}.test").read_text(encoding="utf-8")):
        head, _, plans = block.partition("\n---- before\n")
        before, _, after = plans.partition("\n---- after\n")
        lines = head.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        records.append(
            Record(rule, comments, "\n".join(line for line in lines if not line.startswith("#")), before, after)
        )
    return records


RECORDS = [pytest.param(record, id=f"{rule}-{number}") for rule in NAMED for number, record in enumerate(read(rule), 1)]


@pytest.fixture(scope="module")
def db() -> Any:
    return session()


@pytest.fixture(scope="module")
def duck() -> Any:
    return oracle()


def plans(db: Any, record: Record) -> tuple[str, str]:
    """The plan before the rule and after it."""
    plan: Any = logical_plan(db, record.sql) if record.sql else read_plan(record.before, TABLES)
    for name in record.first:
        plan = NAMED[name](plan)
    changed = NAMED[record.rule](plan)
    before, after = show(plan), show(changed)
    assert (changed is plan) or before != after, "a rule that has nothing to say returns the same object"
    assert show(NAMED[record.rule](changed)) == after, "a rule applied twice does what it does once"
    return before, "(unchanged)" if before == after else after


@pytest.mark.parametrize("rule", NAMED)
def test_plans(rule: str, db: Any, regen: bool) -> None:
    records = read(rule)
    for record in records:
        before, after = plans(db, record)
        if regen:
            record.before, record.after = before if record.sql else record.before, after
        else:
            assert before == record.before or not record.sql, record.sql
            assert after == record.after, record.comments[0]
    fires = {record.after != "(unchanged)" for record in records}
    assert fires == {True, False}, "cases in which the rule fires, and cases in which it must not"
    for record in records:
        assert record.comments[0].startswith("# Must not fire: ") == (record.after == "(unchanged)"), record.sql
    if regen:
        (FOLDER / f"{rule}.test").write_text(
            "\n====\n".join(record.text() for record in records) + "\n", encoding="utf-8"
        )


@pytest.mark.parametrize("about", NAMED)
def test_a_rule_is_about_nodes(about: str, db: Any) -> None:
    """What `optimize` leaves a rule out for: it changes no plan that has none of its nodes."""
    left_alone = 0
    for record in read(about):
        plan: Any = logical_plan(db, record.sql) if record.sql else read_plan(record.before, TABLES)
        kinds = {type(node) for node in nodes(plan)}
        for rule in NAMED.values():
            if not rule.applies_to(kinds):
                assert rule(plan) is plan, rule.name
                left_alone += 1
    assert left_alone


@pytest.mark.parametrize("record", RECORDS)
def test_rows(record: Record, db: Any, duck: Any) -> None:
    if not record.sql:
        plan = read_plan(record.before, TABLES)
        assert reference_rows(NAMED[record.rule](plan)) == reference_rows(plan)
        assert reference_rows(optimize(plan)) == reference_rows(plan)
        return
    query = logical_plan(db, record.sql)
    # What DuckDB cannot say is compared with the plan that no rule has changed.
    told = "MATCH_RECOGNIZE" not in record.sql
    text = to_duckdb(record.sql) if "window_start" in record.sql else record.sql
    expected = (
        duck.sql(text).to_arrow_table() if told else run_plan(db, make_plan(query, Settings(optimizer=False), shards=3))
    )
    for disabled in (frozenset(), frozenset({record.rule})):
        plan = make_plan(optimize(query, disabled), Settings(optimizer=False), shards=3)
        assert_same_rows(run_plan(db, plan), expected, ordered=is_ordered(record.sql))


def test_each_rule_has_a_fixture() -> None:
    assert {path.stem for path in FOLDER.glob("*.test")} == set(NAMED)


def test_trace() -> None:
    """Every rule runs through one door: timed, by name, and told apart by whether it changed anything."""
    trace: list[tuple[str, float, bool]] = []
    optimize(
        logical_plan(session(), "SELECT ad_id FROM clicks WHERE price > 1 + 1"), frozenset({"prune_columns"}), trace
    )
    assert [name for name, _, _ in trace] == [rule.name for rule in RULES if rule.name != "prune_columns"]
    assert {name: changed for name, _, changed in trace}["fold_constants"]
    assert not {name: changed for name, _, changed in trace}["split_conjunctions"]
    assert all(ms >= 0 for _, ms, _ in trace)


def test_many_conjuncts() -> None:
    """Hundreds of conditions, as programs write them, stay a plan of a few nodes and keep their meaning."""
    db = session()
    sql = "SELECT count(*) AS n FROM clicks WHERE " + " AND ".join(f"user_id <> {number}" for number in range(30, 530))
    plan = optimize(logical_plan(db, sql))
    assert sum(1 for _ in plan.walk()) < 40
    assert db.sql(sql).fetchall() == [(180,)]


def test_filters_do_not_overtake_failing_ones() -> None:
    """A cast that may fail stays above the filter that keeps bad texts from it, however the two are nested."""
    db = session()
    inner = "SELECT code, count(*) AS n FROM clicks WHERE code <> 'none' GROUP BY code"
    assert db.sql(f"SELECT count(*) FROM ({inner}) WHERE n > 1 AND CAST(code AS INTEGER) > 5").fetchall() == [(3,)]
    assert (
        db.sql(
            "SELECT code FROM (SELECT code, count(*) AS n FROM clicks GROUP BY code) WHERE n = 30 + 300 "
            "AND CAST(code AS INTEGER) > 5"
        ).fetchall()
        == []
    )


@pytest.mark.parametrize(
    "where",
    [
        "a.ad_id = b.ad_id AND a.price > 1",
        "(a.ad_id = b.ad_id AND a.price > 1) OR (a.ad_id = b.ad_id AND b.price < 5)",
    ],
)
def test_no_product_without_the_optimizer(where: str) -> None:
    """Conditions that connect tables become conditions of their join also where the optimizer is off."""
    changed = without_products(logical_plan(session(), f"SELECT count(*) FROM clicks a, clicks b WHERE {where}"))
    (join,) = [node for node in nodes(changed) if isinstance(node, Join)]
    assert "ad_id = b_ad_id" in [str(part) for part in conjuncts(join.condition)]
