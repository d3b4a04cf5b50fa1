"""A Spark cluster in a process of its own, whose tasks fail on request (`faulty_daemon.py`).

`FaultyCluster` starts `python -m tests.spark.faults FOLDER MASTER SETTINGS` and talks to it in lines of JSON: a request
is a query with its faults, the answer has the rows (in an Arrow file) or the error, and what is left on the cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from tests.patience import wait_until
from tsql.kernels.expr.errors import TsqlError

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "spark.python.daemon.module": "tests.spark.faulty_daemon",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "4",
    "spark.stage.maxConsecutiveAttempts": "8",
    "spark.excludeOnFailure.enabled": "false",
    # A lost executor is noticed at once, and nobody waits long for its blocks.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}


MOST_DELETED = 5
"""Workers that are at rest may keep fewer files without a name than this, in all."""


def fault(do: str, stage: int | None = None, shard: int | None = None, at: str = "begin", times: int = 1) -> Any:
    return {"do": do, "stage": stage, "shard": shard, "at": at, "times": times}


class FaultyCluster:
    """The cluster as a test sees it."""

    def __init__(self, folder: Path, master: str = "local-cluster[2,1,512]", **settings: str):
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TSQL_FAULTS": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.faults", str(folder), master, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("wb"),
            env=environment,
            cwd=ROOT,
            start_new_session=True,
            text=True,
        )
        self.ask({"do": "nothing"})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, (self.folder / "stderr").read_text()[-3000:]
        return json.loads(line)

    def run(self, sql: str, faults: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
        """The outcome of a query. `hits`: what the faults have hit, `ran`: the (stage, shard) of tasks that ran."""
        for pattern in ("fault*", "claim-*", "ran-*", "ended-*"):
            for path in self.folder.glob(pattern):
                path.unlink()
        (self.folder / "go").unlink(missing_ok=True)
        for number, one in enumerate(faults):
            (self.folder / f"fault{number}.json").write_text(json.dumps(one))
        found = self.ask({"do": "run", "sql": sql, **more})
        found["hits"] = self.hits()
        found["ran"] = sorted(tuple(map(int, path.name.split("-")[1:3])) for path in self.folder.glob("ran-*"))
        if "rows" in found:
            with pa.ipc.open_file(found["rows"]) as file:
                found["table"] = file.read_all()
        return found

    def hits(self) -> list[Any]:
        return [json.loads(path.read_text() or "{}") for path in self.folder.glob("claim-*")]

    def close(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(60)
        except (subprocess.TimeoutExpired, OSError):
            pass
        finally:
            # What is left of the session that was started here: the JVMs, if the driver has died.
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()


class Driver:
    """The process of the driver: answers requests."""

    def __init__(self, folder: Path, master: str, settings: dict[str, str]):
        import tsql
        from tests.spark.queries import fill
        from tsql.backends.spark.backend import SparkBackend
        from tsql.tpch import data

        self.folder = folder
        if settings.pop("tables", "large") == "large":
            # No table is small enough for a broadcast: rows are placed by their keys.
            SparkBackend.broadcast_bytes = -1  # type: ignore[assignment,method-assign]
        places = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "tables")}
        self.db = tsql.connect(backend="spark", master=master, conf={**SETTINGS, **places, **settings})
        self.spark = self.db.backend.spark
        self.context = self.spark.sparkContext
        for name, path in data.tables(0.01).items():
            self.db.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        fill(self.db, str(folder / "rows" / "*.parquet"))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "run":
                return self.run(**{key: value for key, value in request.items() if key != "do"})
            case "left":
                return self.left(set(request.get("known", ())))
            case "frame":
                rows = self.spark.range(0, request["rows"], 1, request["partitions"])
                self.db.register("numbers", rows.selectExpr("id", "id % 7 AS g", "CAST(id AS STRING) AS text"))
            case "plan":
                import tsql

                return self._outcome(tsql.load_plan_text(request["text"]).run(self.db), 0)
            case "spark":
                return {"rows": [list(row) for row in self.spark.sql(request["sql"]).collect()]}
            case "set":
                self.spark.conf.set(request["name"], request["value"])
        return {}

    def run(
        self,
        sql: str,
        threads: int = 1,
        cancel: bool = False,
        kill: bool = False,
        analyze: bool = False,
        settings: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run a query, in several threads at once. When a task is held, `cancel` it, or `kill` the driver's JVM.
        `analyze`: only what `explain analyze` tells of it."""
        for text in settings:
            self.db.execute(text)
        outcomes: list[dict[str, Any]] = [{} for _ in range(threads)]

        def end() -> None:
            self._held()
            for work in list(self.db._running.at_work):
                work.run.cancel()

        def one(number: int) -> None:
            if cancel:
                threading.Thread(target=end).start()
            try:
                relation = self.db.sql(sql)
            except TsqlError as error:
                outcomes[number] = {"error": type(error).__name__, "message": error.message}
                return
            if kill:
                jvm = self.context._gateway.proc.pid
                threading.Thread(target=lambda: (self._held(), os.kill(jvm, signal.SIGKILL))).start()
            outcomes[number] = self._outcome(relation, number, analyze)

        workers = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        first = outcomes[0]
        return {**first, "same": all(other.get("digest") == first.get("digest") for other in outcomes)}

    def _held(self) -> bool:
        return wait_until(lambda: any(self.folder.glob("claim-*")))

    def _outcome(self, relation: Any, number: int, analyze: bool = False) -> dict[str, Any]:
        try:
            if analyze:
                return {"text": relation.explain("analyze")}
            table = relation.arrow()
        except BaseException as error:
            return {
                "error": type(error).__name__,
                "whole": str(error),
                "message": getattr(error, "message", str(error)),
                "hint": getattr(error, "hint", None),
                "cause": str(error.__cause__),
                "trace": traceback.format_exc(),
            }
        path = self.folder / f"rows{number}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        return {"rows": str(path), "digest": sorted(map(str, table.to_pylist())), "counts": relation.counts}

    def left(self, known: set[str]) -> dict[str, Any]:
        """What queries have left behind, once the cluster is at rest. `known`: files that were there before."""
        tracker = self.context.statusTracker()
        wait_until(lambda: not tracker.getActiveJobsIds())
        wait_until(lambda: not self._active() and not self._threads() and not set(self._files("shuffle_*")) - known)
        # A worker frees the rows of a cancelled task when it notices, perhaps after Spark has counted the task off.
        wait_until(lambda: self._descriptors().get("deleted", 0) < MOST_DELETED)
        jvm = self.context._jsc
        return {
            "active": self._active(),
            "rdds": len(jvm.getPersistentRDDs()),
            "shuffles": sorted(set(self._files("shuffle_*")) - known),
            "broadcasts": self._files("broadcast_*"),
            "blocks": self._files("temp_*"),
            "temporary": sorted(path.name for path in Path(self.context._temp_dir).iterdir()),
            "threads": self._threads(),
            "descriptors": self._descriptors(),
        }

    def _threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("tsql-spark")]

    def _active(self) -> int:
        store = self.context._jsc.sc().statusStore()
        return sum(one.activeTasks() for one in _items(store.executorList(True)))

    def _files(self, pattern: str) -> list[str]:
        return sorted(path.name for path in (self.folder / "local").rglob(pattern))

    def _descriptors(self) -> dict[str, int]:
        """Open files of the Python workers on the cluster, by their kind."""
        found: dict[str, int] = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if b"tests.spark.faulty_daemon" not in (path / "cmdline").read_bytes():
                    continue
                if f"TSQL_FAULTS={self.folder}".encode() not in (path / "environ").read_bytes():
                    continue
                for one in (path / "fd").iterdir():
                    target = os.readlink(one)
                    found[_kind(target)] = found.get(_kind(target), 0) + 1
            except OSError:
                continue
        return found


def _kind(target: str) -> str:
    """What an open file is. Workers keep the memory that they shared in their last runs, which has no name either."""
    if "tsql-shared" in target:
        return "shared"
    return "deleted" if "(deleted)" in target else "parquet" if ".parquet" in target else "other"


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def main() -> None:
    folder, master, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    driver = Driver(folder, master, settings)
    for line in sys.stdin:
        try:
            found = driver.answer(json.loads(line))
        except Exception as error:
            found = {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
        answers.write(json.dumps(found) + "\n")
        answers.flush()
    application = driver.context.applicationId
    driver.db.close()
    # A local cluster keeps the logs of its executors inside of the installed package.
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


if __name__ == "__main__":
    main()
