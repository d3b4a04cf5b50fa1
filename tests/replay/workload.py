"""The workload: the slt corpus, TPC-H, and the queries of rules, plans and errors (`fixtures.py`).

`record` runs each part in its own process.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.replay.kernels import Seen
from tests.replay.recording import Entry, Recording
from tests.slt import records as slt
from tests.slt.engines import CONFIGS, Tsql
from tests.slt.sampling import CORPUS, each
from tests.slt_runner import corpus_files
from tsql.kernels.expr.errors import TsqlError
from tsql.tpch import engines as tpch
from tsql.tpch.check import fill
from tsql.tpch.data import data_folder, tables
from tsql.tpch.queries import NUMBERS, query

ROOT = Path(__file__).resolve().parent.parent.parent
SCALE = 0.01
THREADS = 2
"""The number of threads. Plans have as many shards, so they are the same on every machine."""

EVERY = {"spill": 6, "shards_3": 6}
"""Further configurations: each runs one query in this many."""

FIXTURES = ("rules", "plans", "plan_files", "bad_input", "join_hints", "mutated", "binding", "truncated")
"""Functions of `fixtures.py`, which is imported on demand: it imports a dozen test files."""


class Recorder:
    """Runs queries one after the other, and notes what the engine did for each."""

    def __init__(self, seen: Seen):
        self.seen = seen
        self.recording = Recording()

    def note(self, source: str, config: str, line: int, sql: str, run: Callable[[], Any]) -> None:
        """Run a query, and record what was seen of it."""
        self.seen.clear()
        message = None
        try:
            run()
        except TsqlError as error:
            message = str(error)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
        plans = [self.recording.keep(without_places(plan)) for plan in dict.fromkeys(self.seen.plans)]
        kernels, constants = (self.recording.keep_kernels(texts) for texts in (self.seen.kernels, self.seen.constants))
        message = None if message is None else without_places(message)
        self.recording.entries.append(Entry(source, config, line, sql, plans, kernels, constants, message))

    def note_query(self, source: str, number: int, db: Any, sql: str) -> None:
        """Run a query of a session, and record what was seen of it."""
        self.note(source, "default", number, sql, lambda: self.rows_of(db.sql(sql)))

    def rows_of(self, relation: Any) -> Any:
        """All rows of a relation. Its plan is recorded also if it does not run."""
        try:
            self.seen.plans.append(relation.plan())
        except TsqlError:
            pass  # SHOW and others have none; an error in planning comes again.
        return relation.arrow()


def without_places(text: str) -> str:
    """A text without the folders of this machine."""
    for folder, name in ((data_folder(), "<data>"), (ROOT, "<root>"), (Path(tempfile.gettempdir()), "<tmp>")):
        text = text.replace(f"{folder}/", f"{name}/")
    return text


@dataclass(frozen=True)
class Part:
    """A part of the workload. `cost` is a guess of how long it takes, in any unit: the longest start first."""

    name: str
    run: Callable[[Recorder], None]
    cost: float


def parts(only: str = "") -> list[Part]:
    """All parts whose name has a match of the pattern."""
    return [part for part in (*_corpus(), *_tpch(), *_fixtures()) if re.search(only, part.name)]


class _Observed(Tsql):
    """Our engine, with the plans of its queries recorded."""

    def __init__(self, config: str, recorder: Recorder):
        super().__init__(replace(CONFIGS[config], settings={"threads": THREADS, **CONFIGS[config].settings}))
        self._recorder = recorder

    def query(self, sql: str, params: Any = None) -> pa.Table:
        return self._recorder.rows_of(self._db.sql(sql, params))


def _corpus() -> Iterator[Part]:
    for config, every in {"default": 1, **EVERY}.items():
        for path in corpus_files():
            name = f"slt/{path.relative_to(CORPUS).as_posix()}"
            yield Part(f"{config} {name}", _slt(path, name, config, every), path.stat().st_size / every)


def _slt(path: Path, name: str, config: str, every: int) -> Callable[[Recorder], None]:
    def run(recorder: Recorder) -> None:
        records = [record for record in slt.read(path) if record.runs_under(config)]
        if every > 1:
            records = each(records, every)
        with closing(_Observed(config, recorder)) as engine:
            for record in records:
                if record.kind == "load":
                    engine.load(record.argument)
                elif record.sql:
                    run_one = engine.query if record.kind == "query" else engine.execute
                    recorder.note(name, config, record.line, record.sql, partial(run_one, record.sql, record.params))

    return run


def _tpch() -> Iterator[Part]:
    for how in ("memory", "parquet"):

        def run(recorder: Recorder, how: str = how) -> None:
            with closing(tpch.Tsql(THREADS)) as engine:
                fill(engine, tables(SCALE), how)
                for number in NUMBERS:
                    sql = query(number, SCALE)
                    recorder.note_query(f"tpch/{how}", number, engine.session, sql)

        yield Part(f"default tpch/{how}", run, 100_000)


def _fixtures() -> Iterator[Part]:
    for name in FIXTURES:
        run = lambda recorder, name=name: getattr(import_module("tests.replay.fixtures"), name)(recorder)
        yield Part(f"default fixtures/{name}", run, 50_000)
