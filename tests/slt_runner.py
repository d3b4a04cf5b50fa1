"""Runs a `.slt` file on an engine and on the oracle and lists every record that differs; fills in expected rows.

`tests/test_slt.py` calls `run_file` once per file and configuration; the format is described in tests/slt/README.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from tests.slt import records as slt
from tests.slt.engines import DuckDB
from tests.slt.render import Result, differing_row, render
from tests.slt.sampling import CORPUS, each, sample

Outcome = Result | Exception | None
"""The oracle's result for a record: rows for a query, an error, or None."""
_IDENTIFIER = re.compile(r"\w+")


@dataclass(frozen=True)
class Failure:
    """A record whose outcome differs from the file or the oracle. `kind` groups failures in a summary."""

    line: int
    kind: str
    message: str
    sql: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.message}\n    " + self.sql.replace("\n", "\n    ")


def corpus_files(root: Path = CORPUS) -> list[Path]:
    return sorted(root.rglob("*.slt"))


def run_file(
    path: Path,
    engine: Any,
    config: str = "default",
    *,
    strict_names: bool = False,
    sampled: bool = False,
    every: int = 1,
    turn: int = 0,
) -> list[Failure]:
    """All failures of a file on a fresh engine, which the caller closes.

    `sampled` runs what the configuration runs by default, `every` = n about each n-th query or failing statement; other
    ones in another `turn`.
    """
    records = slt.read(path)
    if sampled:
        records = sample(path, records, config)
    if every > 1:
        records = each(records, every, turn)
        return list(_run(records, engine, _outcomes(records), config, strict_names))
    return list(_run(records, engine, oracle_outcomes(path), config, strict_names))


@functools.cache
def oracle_outcomes(path: Path) -> dict[int, Outcome]:
    """What a live DuckDB does with each record of a file, by line. Every configuration is compared with the same
    run."""
    return _outcomes(slt.read(path))


def _outcomes(records: list[slt.Record]) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    with closing(DuckDB()) as oracle:
        for record in records:
            sql = record.oracle or record.sql
            try:
                match record.kind:
                    case "load":
                        oracle.load(record.argument)
                    case "statement":
                        oracle.execute(sql, record.params)
                    case "query":
                        outcomes[record.line] = render(oracle.query(sql, record.params))
            except duckdb.Error as problem:
                outcomes[record.line] = problem
    return outcomes


def _run(
    records: list[slt.Record], engine: Any, oracle: dict[int, Outcome], config: str, strict_names: bool
) -> Iterator[Failure]:
    for record in records:
        if not record.runs_under(config):
            continue
        expected = oracle.get(record.line)
        match record.kind:
            case "load":
                yield from _succeeds(record, engine, expected, lambda record=record: engine.load(record.argument))
            case "names":
                strict_names = strict_names or record.argument == "exact"
            case "statement" if record.error is None:
                yield from _succeeds(
                    record, engine, expected, lambda record=record: engine.execute(record.sql, record.params)
                )
            case "statement":
                yield from _fails(record, engine, expected)
            case "query":
                yield from _query(record, engine, expected, strict_names)


def _succeeds(record: slt.Record, engine: Any, expected: Outcome, action: Callable[[], None]) -> Iterator[Failure]:
    if isinstance(expected, Exception):
        yield _refused(record, expected)
    try:
        action()
    except Exception as problem:
        yield _raised(record, engine, problem)


def _fails(record: slt.Record, engine: Any, expected: Outcome) -> Iterator[Failure]:
    if not isinstance(expected, Exception):
        yield Failure(record.line, "oracle", "DuckDB accepts what must fail", record.sql)
    try:
        engine.execute(record.sql, record.params)
        yield Failure(
            record.line, "no error", f"{engine.name} accepts what must fail with /{record.error}/", record.sql
        )
    except engine.error as problem:
        # DuckDB's messages may differ: the pattern is about our own.
        if engine.name != DuckDB.name and not re.search(record.error, str(problem), re.IGNORECASE):
            yield Failure(
                record.line, "message", f"{_first_line(problem)!r} does not match /{record.error}/", record.sql
            )
    except Exception as problem:
        yield _raised(record, engine, problem)


def _query(record: slt.Record, engine: Any, expected: Outcome, strict_names: bool) -> Iterator[Failure]:
    if not isinstance(expected, Result):
        yield _refused(record, expected)
        return
    by_value = record.sort == "valuesort"
    if record.rows is None:
        yield Failure(record.line, "incomplete", "no expected rows: run pytest with --complete", record.sql)
    else:
        stored = [tuple(row.split("\t")) for row in record.rows]
        difference = differing_row(expected.sorted(record.sort), stored, expected.types, by_value=by_value)
        if difference:
            yield Failure(
                record.line, "oracle", f"DuckDB no longer gives the rows of the file: {difference}", record.sql
            )
        if record.types != expected.letters:
            yield Failure(
                record.line,
                "oracle",
                f"column types are {expected.letters}, the file says {record.types or 'nothing'}",
                record.sql,
            )
    try:
        sql = record.oracle or record.sql if isinstance(engine, DuckDB) else record.sql
        given = render(engine.query(sql, record.params))
    except Exception as problem:
        yield _raised(record, engine, problem)
        return
    if given.types != expected.types:
        yield Failure(record.line, "types", _differing_types(given, expected), record.sql)
    if not _same_names(given.names, expected.names, strict_names):
        yield Failure(record.line, "names", f"{given.names} instead of {expected.names}", record.sql)
    difference = differing_row(
        given.sorted(record.sort), expected.sorted(record.sort), expected.types, by_value=by_value
    )
    if difference:
        yield Failure(record.line, "rows", difference, record.sql)


def _same_names(given: list[str], expected: list[str], strict: bool) -> bool:
    """Names written in the query must equal DuckDB's. Names that DuckDB generates from an expression are compared if
    strict."""
    return len(given) == len(expected) and all(
        g == e for g, e in zip(given, expected, strict=True) if strict or _IDENTIFIER.fullmatch(e)
    )


def _differing_types(given: Result, expected: Result) -> str:
    if len(given.types) != len(expected.types):
        return f"{len(given.types)} columns instead of {len(expected.types)}"
    return "; ".join(
        f"{name}: {g} instead of {e}"
        for name, g, e in zip(expected.names, given.types, expected.types, strict=True)
        if g != e
    )


def _raised(record: slt.Record, engine: Any, problem: Exception) -> Failure:
    kind = "error" if isinstance(problem, engine.error) else f"crash ({type(problem).__name__})"
    return Failure(record.line, kind, f"{engine.name}: {_first_line(problem)}", record.sql)


def _refused(record: slt.Record, problem: Outcome) -> Failure:
    return Failure(record.line, "oracle", f"DuckDB: {_first_line(problem)}", record.sql)


def _first_line(problem: Any) -> str:
    return str(problem).strip().split("\n")[0]


def complete_file(path: Path) -> list[Failure]:
    """Write the oracle's rows and column types into the file; return the records that the oracle refuses."""
    records, outcomes, failures = slt.read(path), oracle_outcomes(path), []
    for record in records:
        expected = outcomes.get(record.line)
        if isinstance(expected, Result):
            record.types = expected.letters
            record.rows = ["\t".join(row) for row in expected.sorted(record.sort)]
        elif isinstance(expected, Exception) and record.error is None:
            failures.append(_refused(record, expected))
    path.write_text(slt.write(records), encoding="utf-8")
    return failures


def count_queries(root: Path = CORPUS) -> int:
    return sum(record.kind == "query" for path in corpus_files(root) for record in slt.read(path))
