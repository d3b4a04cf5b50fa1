"""A planner remembers the step of each node and the estimate of each step; nodes that come and go have no effect on
others."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Literal
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.planner.choose.enumerate import Enumerator
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.operators.values import Values

FIELDS = Schema((Field("n", BIGINT, False),))


def test_a_node_at_the_address_of_one_that_is_gone_has_its_own_step():
    planner = Enumerator(1)
    numbers = [planner.step(logical.Values(((Literal(n, BIGINT),),), FIELDS)).rows[0][0].value for n in range(50)]
    assert numbers == list(range(50))


def test_a_step_at_the_address_of_one_that_is_gone_has_its_own_estimate():
    estimator = Estimator(1)
    rows = [estimator.of(Values((), rows=((Literal(0, BIGINT),),) * n, fields=FIELDS)).rows for n in range(1, 50)]
    assert rows == list(range(1, 50))
