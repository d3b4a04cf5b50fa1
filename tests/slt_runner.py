"""Runs a `.slt` file on an engine and on the oracle and lists every record that differs; fills in expected rows.

`tests/test_slt.py` calls `run_file` once per file and configuration; the format is described in tests/slt/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slt import records as slt
from tests.slt.render import Result, differing_row, render

CORPUS = Path(__file__).parent / "slt"
_IDENTIFIER = re.compile(r"\w+")


@dataclass(frozen=True)
class Failure:
    """One record that did not do as the file or the oracle says. `kind` groups failures in a summary."""

    line: int
    kind: str
    message: str
    sql: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.message}\n    " + self.sql.replace("\n", "\n    ")


def corpus_files(root: Path = CORPUS) -> list[Path]:
    return sorted(root.rglob("*.slt"))


def run_file(path: Path, engine: Any, oracle: Any, config: str = "default", *, strict_names: bool = False) -> list[Failure]:
    """All failures of a file. Both engines are fresh; the caller closes them."""
    return list(_run(slt.read(path), engine, oracle, config, strict_names))


def _run(records: list[slt.Record], engine: Any, oracle: Any, config: str, strict_names: bool) -> Iterator[Failure]:
    for record in records:
        if not record.runs_under(config):
            continue
        match record.kind:
            case "load":
                engine.load(record.argument)
                oracle.load(record.argument)
            case "names":
                strict_names = strict_names or record.argument == "exact"
            case "statement" if record.error is None:
                yield from _statement_ok(record, engine, oracle)
            case "statement":
                yield from _statement_error(record, engine, oracle)
            case "query":
                yield from _query(record, engine, oracle, strict_names)


def _statement_ok(record: slt.Record, engine: Any, oracle: Any) -> Iterator[Failure]:
    for side, sql in ((engine, record.sql), (oracle, record.oracle or record.sql)):
        try:
            side.execute(sql, record.params)
        except Exception as problem:
            yield _raised(record, side, problem)


def _statement_error(record: slt.Record, engine: Any, oracle: Any) -> Iterator[Failure]:
    try:
        engine.execute(record.sql, record.params)
        yield Failure(record.line, "no error", f"{engine.name} accepts what must fail with /{record.error}/", record.sql)
    except engine.error as problem:
        if engine.name != oracle.name and not re.search(record.error, str(problem), re.IGNORECASE):
            yield Failure(record.line, "message", f"{_first_line(problem)!r} does not match /{record.error}/", record.sql)
    except Exception as problem:
        yield _raised(record, engine, problem)
    try:
        oracle.execute(record.oracle or record.sql, record.params)
        yield Failure(record.line, "oracle", "DuckDB accepts what must fail", record.sql)
    except oracle.error:
        pass


def _query(record: slt.Record, engine: Any, oracle: Any, strict_names: bool) -> Iterator[Failure]:
    try:
        expected = render(oracle.query(record.oracle or record.sql, record.params))
    except Exception as problem:
        yield _raised(record, oracle, problem)
        return
    by_value = record.sort == "valuesort"
    if record.rows is None:
        yield Failure(record.line, "incomplete", "no expected rows: run pytest with --complete", record.sql)
    else:
        stored = [tuple(row.split("\t")) for row in record.rows]
        difference = differing_row(expected.sorted(record.sort), stored, expected.types, by_value=by_value)
        if difference:
            yield Failure(record.line, "oracle", f"DuckDB no longer gives the rows of the file: {difference}", record.sql)
        if record.types != expected.letters:
            yield Failure(record.line, "oracle", f"column types are {expected.letters}, the file says {record.types or 'nothing'}", record.sql)
    try:
        given = render(engine.query(record.sql, record.params))
    except Exception as problem:
        yield _raised(record, engine, problem)
        return
    if given.types != expected.types:
        yield Failure(record.line, "types", f"{_differing(given, expected, 'types')}", record.sql)
    if not _same_names(given.names, expected.names, strict_names):
        yield Failure(record.line, "names", f"{given.names} instead of {expected.names}", record.sql)
    difference = differing_row(given.sorted(record.sort), expected.sorted(record.sort), expected.types, by_value=by_value)
    if difference:
        yield Failure(record.line, "rows", difference, record.sql)


def _same_names(given: list[str], expected: list[str], strict: bool) -> bool:
    """Names that the query gives must be DuckDB's. Names that DuckDB generates from an expression are compared if strict."""
    return len(given) == len(expected) and all(g == e for g, e in zip(given, expected, strict=True) if strict or _IDENTIFIER.fullmatch(e))


def _differing(given: Result, expected: Result, what: str) -> str:
    pairs = [f"{name}: {g} instead of {e}" for name, g, e in zip(expected.names, getattr(given, what), getattr(expected, what), strict=False) if g != e]
    return "; ".join(pairs) or f"{len(given.types)} columns instead of {len(expected.types)}"


def _raised(record: slt.Record, side: Any, problem: Exception) -> Failure:
    kind = "error" if isinstance(problem, side.error) else f"crash ({type(problem).__name__})"
    return Failure(record.line, "oracle" if side.name == "duckdb" else kind, f"{side.name}: {_first_line(problem)}", record.sql)


def _first_line(problem: Exception) -> str:
    return str(problem).strip().split("\n")[0]


def complete_file(path: Path, oracle: Any) -> list[Failure]:
    """Write the oracle's rows and column types into the file; return the records that the oracle refuses."""
    records, failures = slt.read(path), []
    for record in records:
        try:
            match record.kind:
                case "load":
                    oracle.load(record.argument)
                case "statement" if record.error is None:
                    oracle.execute(record.oracle or record.sql, record.params)
                case "query":
                    result = render(oracle.query(record.oracle or record.sql, record.params))
                    record.types = result.letters
                    record.rows = ["\t".join(row) for row in result.sorted(record.sort)]
        except Exception as problem:
            failures.append(_raised(record, oracle, problem))
    path.write_text(slt.write(records), encoding="utf-8")
    return failures


def count_queries(root: Path = CORPUS) -> int:
    return sum(record.kind == "query" for path in corpus_files(root) for record in slt.read(path))
