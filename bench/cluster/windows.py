"""Windows over ad events from Parquet, against `window()` and `session_window()` of SparkSQL.

Each query is measured with its result summed up, so that little is returned, and with its whole result. The sums need
every group, so both are the same work but for what reaches the driver."""

from __future__ import annotations

from bench.cluster.compare import Agreement, Comparison
from bench.cluster.data import ad_events
from bench.cluster.session import Cluster
from bench.temporal_cases import hop, session, tumble

CASES = (tumble(), hop(10), hop(60), session())


def summed(sql: str) -> str:
    """One row about all rows of a window query. Minimum and maximum keep the sum from being computed without the
    groups."""
    return (
        "SELECT count(*) AS n, sum(total) AS total, min(total) AS least, max(total) AS most, "
        f"min(window_start) AS first, max(window_start) AS last FROM ({sql}) AS windows"
    )


def compare(cluster: Cluster, rows: int, runs: int, processor: bool) -> Comparison:
    """Measure the windows over so many events."""
    cluster.view("ads", ad_events(rows))
    table = Comparison(f"Windows over {rows:,} ad events", runs, processor=processor)
    for case in CASES:
        assert case.spark is not None
        for what, form in (("summed up", summed), ("whole result", str)):
            contenders = [cluster.ours(form(case.tsql)), *cluster.theirs(form(case.spark))]
            table.add(f"{case.name}, {what}", contenders, Agreement())
    return table
