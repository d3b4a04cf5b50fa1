"""Measurements in fresh processes: the time before the first row, peak memory, and one thread against several. Called
by `bench`."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tsql.tpch.check import tables_of
from tsql.tpch.data import tables
from tsql.tpch.measure import Spread, geometric_mean, ratios, short, taking_turns
from tsql.tpch.queries import NUMBERS, query
from tsql.tpch.report import Row, Section, counted
from tsql.tpch.worker import Worker, WorkerError

COLD_SCALE = 0.01
"""Small data for cold times, so that the noise of running does not hide the cost of preparation."""
WARM_RUNS = 7
OURS, PEER = "tsql", "duckdb"
Tell = Callable[[str], None]


def cold(names: list[str], numbers: list[int], threads: int, repeats: int, tell: Tell) -> list[Section]:
    """Parse, plan and compile: the extra time of a query's first run over a warm one, in a process with empty disk
    caches, then with filled ones.

    The tables are loaded before, so imports and the start of the compiler are not counted. Only this project caches
    anything on disk."""
    empty = Section("Before the first row, empty caches", [f"{name}, ms" for name in names], "tsql, ms")
    disk = Section(
        "Before the first row, new process, disk cache", [f"{name}, ms" for name in names if name == OURS], "tsql, ms"
    )
    for number in numbers:
        rows = empty_row, disk_row = Row(f"Q{number}", aim="< 300"), Row(f"Q{number}")
        for name in names:
            found: tuple[list[float], list[float]] = ([], [])
            for _ in range(repeats):
                with tempfile.TemporaryDirectory(prefix="tsql-cold-") as cache:
                    for row, values in zip(rows[: 2 if name == OURS else 1], found):
                        _add(row, f"{name}, ms", values, partial(_before, name, number, threads, Path(cache)))
            for row, values in zip(rows, found):
                _settle(row, name, f"{name}, ms", values)
        empty_row.met = None if empty_row.value is None else empty_row.value < 300
        tell(f"query {number}: " + ", ".join(f"{column} {cell}" for column, cell in empty_row.measured.items()))
        empty.rows.append(empty_row)
        disk.rows.append(disk_row)
    for section, limit in ((empty, 120.0), (disk, 25.0)):
        section.rows.append(_mean_row(section, limit))
    return [empty, disk] if OURS in names else [empty]


def _before(name: str, number: int, threads: int, cache: Path) -> float:
    """The first run minus the median of warm runs, in a new process, in milliseconds."""
    sql = query(number, COLD_SCALE)
    with Worker(name, threads, cache) as worker:
        worker.load(_tables_of(sql, COLD_SCALE))
        first = worker.run(number, sql, COLD_SCALE)
        return first - statistics.median(worker.run(number, sql, COLD_SCALE) for _ in range(WARM_RUNS))


def _mean_row(section: Section, limit: float) -> Row:
    """The geometric mean of each engine's medians. Differences of times can be negative by a few microseconds of noise;
    these count as 0.01 ms."""
    row = Row("geometric mean", aim=f"< {limit:g}")
    for column in section.columns:
        name = column.removesuffix(", ms")
        medians = [max(statistics.median(r.runs_ms[name]), 0.01) for r in section.rows if name in r.runs_ms]
        if medians:
            row.measured[column] = f"{short(geometric_mean(medians))} ({counted(len(medians))})"
            if name == OURS:
                row.value = geometric_mean(medians)
                row.met = row.value < limit if len(medians) == len(NUMBERS) else None
    return row


def peaks(names: list[str], numbers: list[int], scale: float, threads: int, repeats: int, tell: Tell) -> Section:
    """The peak memory of a query beyond its tables: a new process each time, with only the query's tables in memory.

    An earlier process has run the query with the same disk caches, so this measures the query and not the compiler:
    LLVM takes some 30 MiB once in a process that compiles anything. The idle memory that the engines' allocators keep
    after loading is returned to the system first; otherwise a query that reuses it would seem to need nothing."""
    section = Section(
        f"Peak memory beyond the tables in memory, scale {scale:g}",
        [f"{name}, MiB" for name in names],
        f"tsql / {PEER}",
    )
    for number in numbers:
        row = Row(f"Q{number}", aim="<= 1.5")
        for name in names:
            values: list[float] = []
            with tempfile.TemporaryDirectory(prefix="tsql-peak-") as cache:
                if name == OURS:
                    _add(row, f"{name}, MiB", [], partial(_peak, name, number, scale, threads, Path(cache)))
                for _ in range(repeats):
                    _add(row, f"{name}, MiB", values, partial(_peak, name, number, scale, threads, Path(cache)))
            _settle(row, name, f"{name}, MiB", values)
        row.value = None
        if OURS in row.runs_ms and PEER in row.runs_ms:
            # Below one mebibyte, the numbers are only code pages and allocator slack.
            ours, theirs = (max(statistics.median(row.runs_ms[name]), 1.0) for name in (OURS, PEER))
            row.value, row.met = ours / theirs, ours / theirs <= 1.5
        tell(f"query {number}: " + ", ".join(f"{column} {cell}" for column, cell in row.measured.items()))
        section.rows.append(row)
    return section


def _peak(name: str, number: int, scale: float, threads: int, cache: Path) -> float:
    """The peak memory of a query's first run in a new process, in MiB. Quickly compiled code is recompiled in full
    before the process ends."""
    sql = query(number, scale)
    with Worker(name, threads, cache) as worker:
        worker.load(_tables_of(sql, scale))
        before = worker.memory()
        worker.run(number, sql, scale)
        peak = worker.peak()
        worker.memory()
        return (peak - before) / 2**20


def threads(names: list[str], numbers: list[int], scale: float, most: int, runs: int, tell: Tell) -> Section:
    """One thread against several, for each engine by itself. Two processes take turns, since some libraries fix their
    number of threads at start."""
    section = Section(
        f"{most} threads against one, tables in memory",
        [f"{name}, 1 thread ms, {most} threads ms, ratio" for name in names],
        "tsql, times faster",
    )
    rows = {number: Row(f"Q{number}") for number in numbers}
    mean = Row("geometric mean")
    for name, column in zip(names, section.columns):
        spreads: list[Spread] = []
        try:
            with _pair(name, scale, most) as pair:
                for number, row in rows.items():
                    try:
                        work = {
                            count: partial(worker.run, number, query(number, scale), scale)
                            for count, worker in pair.items()
                        }
                        one, several = taking_turns(work, runs).values()
                    except WorkerError as error:
                        row.measured[column] = f"not run: {error}"
                        continue
                    spreads.append(ratios(one, several))
                    row.measured[column] = f"{short(one.median)}, {short(several.median)}, {spreads[-1]}"
                    row.runs_ms |= {f"{name}, 1": one.runs_ms, f"{name}, {most}": several.runs_ms}
                    if name == OURS:
                        row.value = spreads[-1].median
        except WorkerError as error:
            for row in rows.values():
                row.measured.setdefault(column, f"not run: {error}")
        if spreads:
            mean.measured[column] = f"{Spread.mean(spreads)} ({counted(len(spreads))})"
            if name == OURS:
                mean.value = Spread.mean(spreads).median
        tell(f"{name}: {mean.measured.get(column, 'not run')}")
    section.rows += [*rows.values(), mean]
    return section


@contextmanager
def _pair(name: str, scale: float, most: int) -> Iterator[dict[str, Worker]]:
    """Workers of one engine with all tables: one with a single thread, one with `most`."""
    with ExitStack() as stack:
        pair = {str(count): stack.enter_context(Worker(name, count)) for count in (1, most)}
        for worker in pair.values():
            worker.load(tables(scale))
        yield pair


def _tables_of(sql: str, scale: float) -> dict[str, Path]:
    paths = tables(scale)
    return {table: paths[table] for table in tables_of(sql)}


def _add(row: Row, column: str, values: list[float], measure: Callable[[], float]) -> None:
    """Measure once more, unless the engine has already refused."""
    if column in row.measured:
        return
    try:
        values.append(measure())
    except WorkerError as error:
        row.measured[column] = f"not run: {error}"


def _settle(row: Row, name: str, column: str, values: list[float]) -> None:
    """Put the measurements of an engine into the row."""
    if not values:
        return
    row.measured[column] = str(Spread.of(values))
    row.runs_ms[name] = tuple(values)
    if name == OURS:
        row.value = statistics.median(values)
