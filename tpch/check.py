"""`check` and `run`: the 22 queries on an engine, compared with DuckDB's answers or just shown. Called by `python -m
tsql.tpch` and by tests."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tsql.tpch.answers import differences, without_limit
from tsql.tpch.data import TABLES, tables
from tsql.tpch.engines import DuckDB, Engine, Tsql
from tsql.tpch.peers import open_engines, reason
from tsql.tpch.queries import query


@dataclass(frozen=True)
class Outcome:
    """The outcome of a query on an engine. `refused` says why it did not run, `wrong` how its answer differs."""

    engine: str
    number: int
    refused: str | None = None
    wrong: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.refused is None and not self.wrong

    def __str__(self) -> str:
        """The outcome as text, without the query's name."""
        return (
            f"not run: {self.refused}"
            if self.refused
            else "wrong answer: " + "; ".join(self.wrong)
            if self.wrong
            else "ok"
        )


class Oracle:
    """DuckDB's answers at one scale, each computed once."""

    def __init__(self, scale: float, paths: dict[str, Path]):
        self.scale = scale
        self.engine = DuckDB(threads=2)
        for table, path in paths.items():
            self.engine.view(table, path)
        self.known: dict[int, pa.Table] = {}

    def answer(self, number: int) -> pa.Table:
        if number not in self.known:
            self.known[number] = self.engine.run(query(number, self.scale))
        return self.known[number]

    def compare(self, engine: str, number: int, run: Callable[[], pa.Table]) -> Outcome:
        """Run a query and compare its answer. Types are only compared for this project: other engines have their
        own."""
        expected = self.answer(number)
        try:
            found = run()
        except Exception as error:
            return Outcome(engine, number, refused=reason(error))
        whole = without_limit(query(number, self.scale))
        unlimited = None if whole is None else lambda: self.engine.run(whole)
        return Outcome(
            engine,
            number,
            wrong=tuple(differences(number, expected, found, types=engine == "tsql", unlimited=unlimited)),
        )

    def close(self) -> None:
        self.engine.close()


def tables_of(sql: str) -> list[str]:
    """The TPC-H tables that a query names."""
    words = set(re.findall(r"\w+", sql))
    return [table for table in TABLES if table in words]


def fill(engine: Engine, paths: dict[str, Path], how: str) -> None:
    """Give an engine its tables: loaded into memory, or read from the Parquet files."""
    for table, path in paths.items():
        (engine.load if how == "memory" else engine.view)(table, path)


def outcomes(engines: dict[str, Engine], numbers: Iterable[int], oracle: Oracle) -> Iterator[Outcome]:
    """Run every query on every engine. The engines have their tables already."""
    for number in numbers:
        for name, engine in engines.items():
            try:
                run = engine.tpch(number, query(number, oracle.scale), oracle.scale)
            except Exception as error:
                yield Outcome(name, number, refused=reason(error))
                continue
            yield oracle.compare(name, number, run)


def check(scales: list[float], numbers: list[int], names: list[str], *, threads: int, backend: str, source: str) -> int:
    """Compare answers at each scale and print one line per query. Returns 0 if all are right, 1 otherwise."""
    failures = 0
    for scale in scales:
        paths = tables(scale)
        oracle = Oracle(scale, paths)
        engines, absent = _open(names, threads, backend)
        for name, why in absent.items():
            print(f"scale {scale:g}, {name}: {why}")
            failures += len(numbers)
        try:
            for engine in engines.values():
                fill(engine, paths, source)
            for outcome in outcomes(engines, numbers, oracle):
                where = f"scale {scale:g}, {outcome.engine}, query {outcome.number}"
                if outcome.wrong:
                    print(f"{where}: wrong answer", *outcome.wrong, sep="\n  ")
                else:
                    print(f"{where}: {outcome}")
                failures += not outcome.right
        finally:
            for engine in engines.values():
                engine.close()
            oracle.close()
    total = len(scales) * len(numbers) * len(names)
    print(f"{failures} of {total} answers are not as DuckDB's" if failures else f"all {total} answers are as DuckDB's")
    return 1 if failures else 0


def run(scale: float, numbers: list[int], *, threads: int, backend: str, source: str, rows: int) -> int:
    """Run queries on this project and print the first rows and the time of each. Returns 0 if all ran, 1 otherwise."""
    engine = Tsql(threads, backend)
    failures = 0
    try:
        fill(engine, tables(scale), source)
        for number in numbers:
            start = time.perf_counter()
            try:
                table = engine.run(query(number, scale))
            except Exception as error:
                print(f"query {number}: not run: {reason(error)}")
                failures += 1
                continue
            spent = (time.perf_counter() - start) * 1000
            if rows:
                engine.session.register("answer", table.slice(0, rows))
                engine.session.table("answer").show()
                engine.session.unregister("answer")
            print(f"query {number}: {table.num_rows} row{'' if table.num_rows == 1 else 's'}, {spent:.1f} ms")
            sys.stdout.flush()
    finally:
        engine.close()
    return 1 if failures else 0


def _open(names: list[str], threads: int, backend: str) -> tuple[dict[str, Engine], dict[str, str]]:
    """The engines by name, with this project on its backend."""
    engines: dict[str, Engine] = {"tsql": Tsql(threads, backend)} if "tsql" in names else {}
    others, absent = open_engines([name for name in names if name != "tsql"], threads)
    return engines | others, absent
