"""Assigns tests to the workers of pytest-xdist: each test by itself, except that one worker runs all tests of the Spark
cluster.

xdist's own scheduling by scope requeues all tests of a dead worker, including those that were done and the one that
killed it; a run of single tests then waits forever. Here the test that killed the worker is reported as failed and not
tried again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from xdist.scheduler import LoadScopeScheduling

ENOUGH = 2
"""A worker starts a test only when it knows the next one, so it is kept this many tests ahead."""


SCOPES = (
    ("tests/spark/test_cluster", "spark"),
    ("tests/spark/test_connect", "connect"),
    *(
        (f"tests/spark/test_{name}.py", "spark")
        for name in (
            "datasets",
            "estimates",
            "lakes",
            "names",
            "overwrites",
            "pipeline",
            "progressive_cluster",
            "readme",
            "runs",
            "saved_tables",
            "sessions",
            "sinks",
            "table_files",
        )
    ),
)
"""How the ids of tests begin that share a cluster, or a Spark Connect server."""


class OneCluster(LoadScopeScheduling):
    """Tests one by one, in the order of collection; those of the cluster together, so that it starts once (in a few
    seconds and GB), and those of the Spark Connect server."""

    def _split_scope(self, nodeid: str) -> str:
        for start, scope in SCOPES:
            if nodeid.startswith(start):
                return scope
        return nodeid

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget finished tests: xdist would iterate over all of them after each of ten thousand tests."""
        nodeid = self.registered_collections[node][item_index]
        scope, assigned = self._split_scope(nodeid), self.assigned_work[node]
        assigned[scope][nodeid] = True
        if all(assigned[scope].values()):
            del assigned[scope]
        self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= ENOUGH:
            try:
                self._assign_work_unit(node)
            except OSError:
                # The worker is dead, but that is not known yet: its tests come back when it is (`remove_node`).
                return
        if not self.workqueue:
            node.shutdown()

    def remove_node(self, node: Any) -> str | None:
        waiting = [
            (scope, nodeid)
            for scope, unit in self.assigned_work.pop(node).items()
            for nodeid, done in unit.items()
            if not done
        ]
        if not waiting:
            return None
        (_, crashed), *rest = waiting
        again: OrderedDict[str, dict[str, bool]] = OrderedDict()
        for scope, nodeid in rest:
            again.setdefault(scope, {})[nodeid] = False
        again.update(self.workqueue)
        self.workqueue = again
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed
