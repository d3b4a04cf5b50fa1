"""requires / provides, enforce and check: what each step asks for, what it says of its output, and who acts on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planner.support import physical_plan, session
from tsql.kernels.expr.errors import PlanError
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN, INTEGER
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.check import check
from tsql.planner.physical.enforce import enforce
from tsql.planner.physical.movement import Broadcast, Gather, Multicast, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.expand import Expand
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.properties import ANY, EVEN, KEYED, ONCE, SINGLE, Properties, Requirement
from tsql.planner.physical.step import PhysicalPlan, Step, named

AD, PRICE = Column("ad_id", BIGINT), Column("price", INTEGER)
COUNT = (("n", AggregateCall("count_star", (), BIGINT)),)
KEYS = (SortKey(AD, False, False), SortKey(PRICE, True, False))


@pytest.fixture(scope="module")
def clicks() -> Step:
    source = session().catalog.lookup("clicks")
    return Scan((), table="clicks", source=source, columns=("ad_id", "price"), name="clicks")


def given(step: Step, *properties: Properties, shards: int = 4) -> Properties:
    return step.provides(properties, shards)


def by(*columns: Column) -> tuple[tuple[str, Expr], ...]:
    return tuple((c.name, c) for c in columns)


@pytest.mark.parametrize(
    ("requirement", "properties", "met"),
    [
        (ANY, Properties(4, replicated="local"), True),
        (SINGLE, Properties(1), True),
        (SINGLE, Properties(4), False),
        (SINGLE, Properties(4, replicated="local"), False),
        (ONCE, Properties(4), True),
        (ONCE, Properties(4, replicated="local"), False),
        (ONCE, Properties(1, replicated=True), True),
        (KEYED, Properties(4), False),
        (KEYED, Properties(4, key=("a",)), True),
        (KEYED, Properties(4, key=("a",), replicated=True), False),
        (Requirement("placed", ("a",)), Properties(4), False),
        (Requirement("placed", ("a",)), Properties(1), True),
        (Requirement("placed", ("a",)), Properties(4, key=("a",)), False),
        (Requirement("placed", ("a",)), Properties(4, placed=("a",)), True),
        (Requirement("placed", ("a", "b")), Properties(4, placed=("b",)), True),
        (Requirement("placed", ("a",)), Properties(4, placed=("a", "b")), False),
        (Requirement("placed", ("a",)), Properties(4, placed=()), False),
        (Requirement("placed", ("a",)), Properties(4, placed=("a",), replicated=True), False),
        (ANY, Properties(4, copies=2), True),
        (ONCE, Properties(4, copies=2), False),
        (ONCE, Properties(4, copies=1), True),
        (SINGLE, Properties(1, copies=1), True),
        (KEYED, Properties(4, key=("a",), copies=2), False),
        (EVEN, Properties(4, copies=2), False),
        (EVEN, Properties(4, copies=1), True),
        (EVEN, Properties(4, replicated="global"), True),
        (Requirement("directed", shards=4), Properties(4, copies=3), True),
        (Requirement("directed", shards=4), Properties(3, copies=3), False),
        (Requirement("directed", shards=4), Properties(4), False),
    ],
)
def test_met_by(requirement: Requirement, properties: Properties, met: bool) -> None:
    assert requirement.met_by(properties) is met


def test_requires(clicks: Step) -> None:
    """What each step asks of its input."""
    placed = Requirement("placed", ("ad_id",))
    computed: tuple[tuple[str, Expr], ...] = (("k", Call("+", (AD, Literal(1, BIGINT)), BIGINT)),)
    expected: list[tuple[Step, Requirement]] = [
        (Aggregate((clicks,), by=by(AD), calls=COUNT), placed),
        (Aggregate((clicks,), by=by(AD), calls=COUNT, phase="final"), placed),
        (Aggregate((clicks,), by=by(AD), calls=COUNT, phase="partial"), ONCE),
        (Aggregate((clicks,), by=by(AD), calls=COUNT, phase="merge"), ONCE),
        (Aggregate((clicks,), calls=COUNT), SINGLE),
        (Aggregate((clicks,), by=computed, calls=COUNT), SINGLE),
        (Sort((clicks,), keys=KEYS), SINGLE),
        (Sort((clicks,), keys=KEYS, limit=Literal(3, BIGINT), phase="partial"), ONCE),
        (Limit((clicks,), count=Literal(3, BIGINT)), SINGLE),
        (Filter((clicks,), predicate=Literal(True, BOOLEAN)), ANY),
        (Project((clicks,), columns=by(AD)), ANY),
        (Redistribute((clicks,)), KEYED),
        (Reshard((clicks,)), ONCE),
        (Broadcast((clicks,)), ONCE),
        (Multicast((clicks,), to=(AD,)), ONCE),
        (Gather((clicks,)), EVEN),
        (Rekey((clicks,), key=("ad_id",)), ANY),
    ]
    for step, requirement in expected:
        assert step.requires() == (requirement,), step.op
    assert Union((clicks, clicks)).requires() == (ONCE, ONCE)
    assert clicks.requires() == Values(()).requires() == ()


def test_movement_provides(clicks: Step) -> None:
    """Movement alone changes where rows are; keys are set by rekey alone."""
    keyed = given(Rekey((clicks,), key=("ad_id",)), Properties(4))
    assert keyed == Properties(4, key=("ad_id",))
    assert given(Redistribute((clicks,), shards=2), keyed) == Properties(2, placed=("ad_id",), key=("ad_id",))
    assert given(Redistribute((clicks,)), keyed, shards=7).shards == 7
    assert given(Reshard((clicks,)), Properties(4, placed=("ad_id",), order=KEYS)) == Properties(4)
    assert given(Broadcast((clicks,), shards=3), Properties(4)) == Properties(3, replicated="local")
    assert given(Multicast((clicks,), to=(AD, PRICE), shards=3), keyed) == Properties(3, key=("ad_id",), copies=2)
    assert given(Multicast((clicks,), to=(AD, PRICE)), Properties(4), shards=1) == Properties(1, copies=1), (
        "a shard gets a row once"
    )
    assert given(Gather((clicks,)), Properties(4, order=KEYS)) == Properties(1), (
        "shards that are ordered each do not make an order"
    )
    assert given(Gather((clicks,)), Properties(1, order=KEYS)).order == KEYS
    assert not given(Gather((clicks,)), Properties(4, replicated="local")).replicated


def test_properties_through_project(clicks: Step) -> None:
    """Placement, key and order follow renames, and end where their columns do."""
    before = Properties(4, placed=("ad_id",), key=("ad_id", "price"), order=KEYS)
    same = given(Project((clicks,), columns=(("p", PRICE), ("a", AD))), before)
    assert same.placed == ("a",)
    assert same.key == ("a", "p")
    assert [str(k) for k in same.order] == ["a asc nulls last", "p desc nulls last"]
    lost = given(Project((clicks,), columns=(("a", AD),)), before)
    assert (lost.placed, lost.key) == (("a",), None)
    assert [str(k) for k in lost.order] == ["a asc nulls last"], "a prefix of the order is left"
    computed = given(
        Project((clicks,), columns=(("ad_id", Call("+", (AD, Literal(1, BIGINT)), BIGINT)), ("price", PRICE))), before
    )
    assert (computed.placed, computed.key, computed.order) == (None, None, ())
    swapped = given(Project((clicks,), columns=(("price", AD), ("ad_id", PRICE))), before)
    assert swapped.placed == ("price",), "the name moved with the column"


def test_properties_through_aggregate(clicks: Step) -> None:
    placed = Properties(4, placed=("ad_id",), key=("ad_id",), order=KEYS)
    assert given(Aggregate((clicks,), by=(("a", AD), ("price", PRICE)), calls=COUNT), placed) == Properties(
        4, placed=("a",)
    )
    assert given(Aggregate((clicks,), by=by(PRICE), calls=COUNT, phase="partial"), placed).placed is None
    assert given(Aggregate((clicks,), calls=COUNT), Properties(4)).shards == 1, "a step that needs one shard gives one"


def test_other_properties(clicks: Step) -> None:
    placed = Properties(4, placed=("ad_id",), order=KEYS)
    assert given(Filter((clicks,), predicate=Literal(True, BOOLEAN)), placed) == placed
    assert given(Expand((clicks,), keys=("ad_id",), sets=((0,), ())), placed) == Properties(4), (
        "a key set to NULL is placed no more"
    )
    assert not ONCE.met_by(
        given(Expand((clicks,), keys=("ad_id",), sets=((0,), ())), Properties(4, replicated="local"))
    ), "copies stay copies"
    assert given(Union((clicks, clicks)), placed, Properties(1)) == Properties(4)
    assert given(Sort((clicks,), keys=KEYS), Properties(1)).order == KEYS
    assert str(Properties(4, placed=("a", "b"))) == "4 shards, placed by (a, b)"
    assert str(Properties(1, placed=("a",), order=KEYS[:1])) == "1 shard, ordered by ad_id asc nulls last"


def ops(root: Step) -> list[str]:
    return [step.op for step in root.walk()]


def test_enforce(clicks: Step) -> None:
    """Movement appears where a requirement is unmet, and nowhere else."""
    grouped = Aggregate((clicks,), by=by(AD), calls=COUNT)
    assert ops(enforce(grouped, 4, "local")) == ["scan", "rekey", "redistribute", "aggregate", "gather"]
    moved = next(s for s in enforce(grouped, 4, "global").walk() if isinstance(s, Redistribute))
    assert (moved.scope, moved.shards, moved.inputs[0].key) == ("global", 4, ("ad_id",))
    assert ops(enforce(Sort((clicks,), keys=KEYS), 4, "local")) == ["scan", "gather", "sort"]
    assert ops(enforce(clicks, 4, "local")) == ["scan", "gather"]
    assert ops(enforce(clicks, 1, "local")) == ["scan"]
    single = Sort((clicks,), keys=KEYS)
    assert enforce(single, 1, "local") is single, "a plan that needs nothing comes back as it is"
    again = Aggregate((grouped,), by=by(AD), calls=COUNT)
    assert ops(enforce(again, 4, "local")).count("redistribute") == 1, "rows that are placed stay"


def test_enforce_takes_one_copy(clicks: Step) -> None:
    """Copies are never counted twice: where each row must be there once, one copy is gathered."""
    copies = Broadcast((clicks,))
    for step in (
        Aggregate((copies,), by=by(AD), calls=COUNT),
        Aggregate((copies,), by=by(AD), calls=COUNT, phase="partial"),
        Union((copies, clicks)),
        Reshard((copies,)),
    ):
        assert ops(enforce(step, 4, "local"))[:3] == ["scan", "broadcast", "gather"], step.op


def renamed(step: Step) -> Step:
    return Project((step,), columns=(("ad", AD), ("cost", PRICE)))


def test_enforce_shares_no_memory_between_machines(clicks: Step) -> None:
    """A join that marks the rows of its table needs one table: shared by the cores of a machine, in one shard between
    machines."""
    joined = HashJoin((clicks, renamed(clicks)), "full", (JoinKey(AD, Column("ad", BIGINT)),))
    near = enforce(joined, 4, "local")
    assert [s.scope for s in near.walk() if isinstance(s, Broadcast)] == ["local"]
    far = enforce(joined, 4, "global")
    assert ops(far) == ["scan", "gather", "project", "gather", "hash_join"]
    check(PhysicalPlan(named(far), (), (), shards=4, target="spark"))


def test_enforce_keeps_rounds_in_one_shard(clicks: Step) -> None:
    """Between machines a recursion runs on one: what was to be moved stays there, and what it meets is gathered."""
    working = Working((), table="r", fields=clicks.schema)
    moved = Redistribute((Rekey((working,), key=("ad_id",)),), scope="global")
    other = Redistribute((Rekey((renamed(clicks),), key=("ad",)),), scope="global")
    joined = HashJoin((moved, other), "semi", (JoinKey(AD, Column("ad", BIGINT)),))
    found = enforce(Recursive((Values((), rows=(), fields=clicks.schema), joined), table="r"), 4, "global")
    assert ops(found) == [
        "values",
        "working",
        "scan",
        "project",
        "rekey",
        "redistribute",
        "gather",
        "hash_join",
        "recursive",
    ]
    check(PhysicalPlan(named(found), (), (), shards=4, target="spark"))


@pytest.mark.parametrize("kind", ["FULL", "LEFT", "INNER"])
@pytest.mark.parametrize("left", ["a.ad_id", "a.ad_id + 1"])
def test_keys_of_one_expression_meet(kind: str, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are placed for a join are not copied besides, also if two keys name one column."""
    monkeypatch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
    sql = f"SELECT a.price, b.price FROM clicks a {kind} JOIN clicks b ON {left} = b.ad_id AND {left} = b.price"
    plan = physical_plan(session(), sql, shards=3, target="spark")
    moved = [s.op for s in plan.root.walk() if s.op in ("redistribute", "broadcast", "gather")]
    assert moved == ["redistribute", "redistribute", "gather"]
    (joined,) = (s for s in plan.root.walk() if isinstance(s, HashJoin))
    assert len(joined.keys) == 2


def test_enforced_plans_pass_check(clicks: Step) -> None:
    for step in (
        Sort((clicks,), keys=KEYS),
        Aggregate((clicks,), by=by(AD), calls=COUNT),
        Limit((clicks,), count=Literal(1, BIGINT)),
        Broadcast((clicks,)),
    ):
        plan = PhysicalPlan(named(enforce(step, 4, "local")), (), (), shards=4)
        check(plan)
        with pytest.raises(PlanError):
            check(PhysicalPlan(named(step), (), (), shards=4))


def test_check_of_the_result(clicks: Step) -> None:
    with pytest.raises(PlanError, match="the output column n is not a column of clicks"):
        check(PhysicalPlan(clicks, ("n",), ("n",), shards=1))


def test_names_are_unique(clicks: Step) -> None:
    twice = named(
        Union(
            (Filter((clicks,), predicate=Literal(True, BOOLEAN)), Filter((clicks,), predicate=Literal(False, BOOLEAN)))
        )
    )
    assert [s.name for s in twice.walk()] == ["clicks", "filtered", "filtered2", "all_rows"]


@pytest.mark.parametrize("target", ["local", "spark"])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_scope_follows_the_target(target: str, shards: int) -> None:
    plan = physical_plan(
        session(), "SELECT ad_id, median(price) AS m FROM clicks GROUP BY ad_id", shards=shards, target=target
    )
    scopes: list[Any] = [s.scope for s in plan.root.walk() if isinstance(s, Redistribute)]
    assert scopes == ([] if shards == 1 else ["global" if target == "spark" else "local"])
