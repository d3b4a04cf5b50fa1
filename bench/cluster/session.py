"""One Spark session with Spark's default settings, on which tsql and SparkSQL run the same queries.

SparkSQL runs in several variants (`Variant`): the settings that a user would try first. tsql runs in the first one."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import tsql
from bench.cluster.compare import Contender

MASTER = "local-cluster[2,1,4096]"
DAEMON = "tsql.backends.spark.daemon"
"""The module that starts Python workers, if the backend has one."""
EXECUTORS_WAIT_S = 120


@dataclass(frozen=True)
class Variant:
    """Settings of SparkSQL that a session may change between queries. What is not named has Spark's default."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)


def variants(cores: int, adaptive_only: bool) -> list[Variant]:
    """SparkSQL as it is by default (adaptive, 200 partitions), without adaptive execution, and without it but with a
    partition per core."""
    default = Variant("SparkSQL")
    if adaptive_only:
        return [default]
    static = {"spark.sql.adaptive.enabled": "false"}
    return [
        default,
        Variant("static", static),
        Variant(f"static, {cores} partitions", static | {"spark.sql.shuffle.partitions": str(cores)}),
    ]


class Cluster:
    """A Spark session, a tsql session on it, and the tables of both."""

    def __init__(self, master: str = MASTER, *, adaptive_only: bool = False, session: Any = None):
        self.owned = session is None
        self.session = start(master) if session is None else session
        self.context = self.session.sparkContext
        self.cores: int = self.context.defaultParallelism
        self.variants = variants(self.cores, adaptive_only)
        changed = {name for variant in self.variants for name in variant.settings}
        self.settings = {name: self.session.conf.get(name) for name in sorted(changed)}
        self.db = tsql.connect(spark=self.session)
        self.views: list[str] = []
        self.facts = {
            "master": self.context.master,
            "cores of the cluster": str(self.cores),
            "pyspark": metadata.version("pyspark"),
            "tsql": tsql.__version__,
        }

    def view(self, name: str, path: Path) -> None:
        """Make a Parquet file readable as a table on both sides. Each query reads them again."""
        self.db.register(name, self.db.read_parquet(path))
        self.session.read.parquet(str(path)).createOrReplaceTempView(name)
        self.views.append(name)

    def ours(self, sql: str, name: str = "tsql") -> Contender:
        """A query on tsql."""
        return Contender(name, lambda: self.db.sql(sql).arrow(), self._prepared(self.variants[0]))

    def ours_by_plan(self, text: str, name: str = "tsql") -> Contender:
        """A plan file on tsql."""
        plan = tsql.load_plan_text(text)
        return Contender(name, lambda: plan.run(self.db).arrow(), self._prepared(self.variants[0]))

    def theirs(self, query: str | Callable[[Any], Any], label: str = "") -> list[Contender]:
        """A query on SparkSQL in each variant: its text, or a function from the session to a DataFrame. `label` tells
        apart several queries of one case."""
        frame = (lambda session: session.sql(query)) if isinstance(query, str) else query
        return [
            Contender(
                f"{variant.name}{label}",
                lambda: frame(self.session).toArrow(),
                self._prepared(variant),
                peer=True,
                default=variant is self.variants[0],
            )
            for variant in self.variants
        ]

    def stages(self, call: Callable[[], object]) -> tuple[int, int]:
        """How many jobs and stages of Spark a call runs."""
        scheduler = self.context._jsc.sc().dagScheduler()
        tracker = self.context.statusTracker()
        first = scheduler.numTotalJobs()
        call()
        jobs = range(first, scheduler.numTotalJobs())
        found = [_known(partial(tracker.getJobInfo, job)) for job in jobs]
        numbers = {number for info in found for number in info.stageIds}
        ran = [_known(partial(tracker.getStageInfo, number)) for number in numbers]
        return len(jobs), sum(info.numCompletedTasks > 0 for info in ran)

    def close(self) -> None:
        self.db.close()
        for name in self.views:
            self.session.catalog.dropTempView(name)
        self._prepared(Variant("as before"))()
        if self.owned:
            stop(self.session)

    def _prepared(self, variant: Variant) -> Callable[[], None]:
        def prepare() -> None:
            for name, value in (self.settings | dict(variant.settings)).items():
                self.session.conf.set(name, value)

        return prepare


def start(master: str) -> Any:
    """A new session whose executors are up. What matters to SparkSQL is as Spark has it, but for memory: a gigabyte
    for each JVM would make it spill."""
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.app.name": "bench.spark",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "4g",
        "spark.driver.maxResultSize": "0",
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    executors = 0
    if sizes := re.fullmatch(r"local-cluster\[(\d+),(\d+),(\d+)\]", master.replace(" ", "")):
        executors = int(sizes[1])
        # A quarter is left to what is outside of the heap.
        settings["spark.executor.memory"] = f"{int(sizes[3]) * 3 // 4}m"
    if importlib.util.find_spec(DAEMON) is not None:
        settings["spark.python.daemon.module"] = DAEMON
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    # Before the executors have registered, the session reports fewer cores than there will be.
    until = time.monotonic() + EXECUTORS_WAIT_S
    while session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() <= executors and executors:
        if time.monotonic() > until:
            stop(session)
            raise RuntimeError(f"{executors} executors of {master} did not start in {EXECUTORS_WAIT_S} s")
        time.sleep(0.1)
    return session


def stop(session: Any) -> None:
    """Stop a session with all of its processes. A local cluster keeps the logs of its executors inside of the installed
    package."""
    import pyspark

    application = session.sparkContext.applicationId
    gateway = session.sparkContext._gateway
    session.stop()
    # The JVM ends with its standard input.
    if (process := getattr(gateway, "proc", None)) is not None:
        gateway.shutdown()
        process.stdin.close()
        process.wait(60)
        session.sparkContext.__class__._gateway = session.sparkContext.__class__._jvm = None
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


def _known(ask: Callable[[], Any]) -> Any:
    """What the status tracker answers, once it knows: events reach it a moment after the call has returned."""
    until = time.monotonic() + 5
    while (info := ask()) is None and time.monotonic() < until:
        time.sleep(0.01)
    if info is None:
        raise RuntimeError("Spark did not report a job or stage")
    return info
