"""Logical plans to physical ones: chooses the steps and their phases by cost, a function for each kind of node.

`enforce` then adds the movement that steps require and do not have."""

from __future__ import annotations

from tsql.planner.choose.aggregates import aggregate_step, distinct_step, set_operation_step
from tsql.planner.choose.asof import asof_step
from tsql.planner.choose.choice import Choice
from tsql.planner.choose.joins import join_step, positional_join_step
from tsql.planner.choose.ordering import limit_by_step, limit_step, sort_step
from tsql.planner.choose.recursions import recursive_step, working_step
from tsql.planner.choose.scans import filter_step, project_step, sample_step, scan_step, series_step, values_step
from tsql.planner.choose.windows import match_step, snapshot_step, window_step
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.generating import Recursive, Sample, Series, Working
from tsql.planner.logical.match import Match
from tsql.planner.logical.positional_join import PositionalJoin
from tsql.planner.logical.snapshot import SnapshotAggregate


class Enumerator(Choice):
    """The choice of steps, with a function for each kind of node."""

    makers = {
        logical.Scan: scan_step,
        logical.Values: values_step,
        logical.Filter: filter_step,
        logical.Project: project_step,
        logical.Aggregate: aggregate_step,
        logical.Distinct: distinct_step,
        logical.SetOperation: set_operation_step,
        logical.Join: join_step,
        AsofJoin: asof_step,
        PositionalJoin: positional_join_step,
        logical.Sort: sort_step,
        logical.Limit: limit_step,
        logical.LimitBy: limit_by_step,
        logical.Window: window_step,
        SnapshotAggregate: snapshot_step,
        Match: match_step,
        Series: series_step,
        Sample: sample_step,
        Working: working_step,
        Recursive: recursive_step,
    }
