"""Lifetimes through the Spark backend's tasks in this process: the same rows as the references give."""

from __future__ import annotations

import pytest

import tsql
from tests.spark.cluster import InProcess
from tests.temporal.constructs import tables
from tests.temporal.constructs.lifetimes import LIFETIMES, SNAPSHOTS
from tests.temporal.data import assert_same_rows, to_rows
from tests.temporal.live.lives import rows_of
from tests.temporal.reference.snapshot import same_snapshots


@pytest.mark.parametrize("construct", (*LIFETIMES, *SNAPSHOTS), ids=lambda construct: construct.name)
def test_lifetimes(construct) -> None:
    data = tables("few_times", seed=9)
    with tsql.connect(spark=InProcess()) as session:
        for name, table in data.items():
            session.register(name, table)
        ours = rows_of(session.sql(construct.sql).arrow())
    expected = construct.reference({name: to_rows(table) for name, table in data.items()})
    if construct.instants:
        assert same_snapshots(ours, expected)
    else:
        assert_same_rows(ours, expected)
