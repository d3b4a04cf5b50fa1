"""`tsql jobs`: the live queries that run, as a table, one of them in full, or as Prometheus text."""

from __future__ import annotations

from typing import Any, TextIO

from tsql.backends.live.jobs.progress import JobProgress, OperatorProgress, StreamProgress
from tsql.cli.display import Line, print_lines, print_table
from tsql.cli.live import summary
from tsql.kernels.expr.types import BIGINT, DOUBLE, VARCHAR
from tsql.relation import of_table

COLUMNS = (
    ("name", VARCHAR),
    ("pid", BIGINT),
    ("seconds", BIGINT),
    ("rows_in", BIGINT),
    ("rate_in", DOUBLE),
    ("rows_out", BIGINT),
    ("late", BIGINT),
    ("held_rows", BIGINT),
    ("held_bytes", BIGINT),
    ("epoch", BIGINT),
)


def table(found: list[dict[str, Any]], file: TextIO) -> None:
    """A row per job."""
    jobs = [(job["pid"], progress(job)) for job in found]
    rows = [
        (p.name, pid, int(p.seconds), p.rows_in, round(p.rate_in, 1), p.rows_out, p.late, p.held_rows, p.held_bytes,
         p.committed)
        for pid, p in jobs
    ]  # fmt: skip
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in COLUMNS]
    names, types = zip(*COLUMNS, strict=True)
    print_table(of_table(names, types, columns), file=file)


def one(found: dict[str, Any], file: TextIO) -> None:
    """A job with its streams, and what each step holds and waits for."""
    known = progress(found)
    picture: list[Line] = summary(known)
    for step in known.operators:
        waits = f", waits for {', '.join(step.waits_for)}" if step.waits_for and not step.has_ended else ""
        picture.append([(f"  step {step.name}", "cyan"), (f"  {step.rows:,} rows: {step.holds}{waits}", "")])
    print_lines(file, picture)


def metrics(found: list[dict[str, Any]]) -> str:
    """All jobs as Prometheus reads them: each name of a metric is described once."""
    described: set[str] = set()
    lines: list[str] = []
    for job in found:
        for line in progress(job).metrics().splitlines():
            if line.startswith("#") and line in described:
                continue
            described.add(line)
            lines.append(line)
    groups: dict[str, list[str]] = {}
    for line in lines:
        name = line.split()[2] if line.startswith("#") else line.split("{")[0]
        groups.setdefault(name, []).append(line)
    return "".join(f"{line}\n" for group in groups.values() for line in group)


def progress(found: dict[str, Any]) -> JobProgress:
    """The values of a status file."""
    plain = {name: value for name, value in found.items() if name not in ("pid", "streams", "operators")}
    streams = tuple(StreamProgress(**stream) for stream in found["streams"])
    operators = tuple(
        OperatorProgress(**{**step, "waits_for": tuple(step["waits_for"])}) for step in found["operators"]
    )
    return JobProgress(**plain, streams=streams, operators=operators)
