"""The processes that run jobs until they are killed, or until they have read everything: lines of JSON to
`serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tsql
from tests.live.kills.cases import CASES, COLUMNS, Case
from tests.live.sinks import worker
from tests.patience import wait_until
from tsql.backends.live.sinks.connectors import sink_of


class JobWorker(worker.Worker):
    module = __name__


def run_job(about: dict[str, Any]) -> None:
    """Run the job of a case. rows: stop it when it has read so many rows of each stream; 0: never."""
    case, folder = CASES[about["case"]], Path(about["folder"])
    database = folder / "db" if case.name == "table" else None
    with tsql.connect(database, threads=about["threads"]) as session:
        _make(session, case, folder)
        sink = _sink(case, folder, about["url"])
        job = session.sql(case.sql).start(sink, checkpoint=folder / "state", interval=about["interval"])
        if not about["rows"]:
            job.wait()
            raise AssertionError("a stream that goes on has ended")
        assert wait_until(lambda: job.is_over or all(s.rows == about["rows"] for s in job.progress().streams))
        job.stop(drain=True)


def _make(session: tsql.Session, case: Case, folder: Path) -> None:
    settle = "" if case.connector == "parquet" else ", settle = '0 seconds'"
    for name in ("events", "others"):
        session.sql(
            f"CREATE STREAM IF NOT EXISTS {name} ({case.columns}) WITH (connector = '{case.connector}', "
            f"path = '{folder / name}/*.{case.connector}', follow = true, poll_interval = '20 ms'{settle})"
        )
    if case.name == "table":
        session.sql(
            "CREATE TABLE IF NOT EXISTS results (k BIGINT, window_start TIMESTAMP, window_end TIMESTAMP, n BIGINT, "
            "s BIGINT, PRIMARY KEY (k, window_start))"
        )
        session.sql(f"CREATE TABLE IF NOT EXISTS late ({COLUMNS})")


def _sink(case: Case, folder: Path, url: str) -> Any:
    match case.name:
        case "parquet":
            return folder / "out"
        case "ndjson":
            return folder / "out.ndjson"
        case "delta":
            return sink_of("delta", {"path": str(folder / "out")})
        case "postgres":
            return sink_of("postgres", {"url": url, "table": "results"})
    return "results"


if __name__ == "__main__":
    worker.serve(run_job)
