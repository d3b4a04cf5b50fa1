"""Plans on disk: a query that an earlier process has planned over the same tables is neither parsed nor planned again.

The key of an entry is everything that its plan was made from: the text, the types of its parameters, the settings, the
costs, this code. The entry lists the catalog lookups of the analysis with a digest of each answer: definitions, texts
of views and statistics; for files names, sizes and modification times. If an answer has changed, the entry counts as
missing and is written again. Only queries over tables of the session and over files that they name are kept. Queries
over registered data, streams, pipes and files that changed a moment ago are planned anew. Entries are JSON files beside
the kernels (`kernels/codegen/object_cache.py`). A session uses them through `PlanStore`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tsql import settings as setting
from tsql.catalog.catalog import Asked, Catalog, FileUse, fingerprint
from tsql.catalog.definition import Table, View
from tsql.costs import calibrated
from tsql.grammar.script import Piece
from tsql.kernels.codegen.object_cache import UNUSABLE, cache_directory, read_entry, write_later
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.identity import code_identity
from tsql.kernels.expr.plain import decode, encode_if_plain
from tsql.kernels.expr.types import Type
from tsql.kernels.process import garbage
from tsql.kernels.process.cores import CORES
from tsql.parameters import check_names
from tsql.planner import PhysicalPlan
from tsql.planner.physical.step import Step
from tsql.prepared import Prepared

if TYPE_CHECKING:
    from tsql.analyze import kinds as statements
    from tsql.query_runner import QueryRunner

FORMAT = 2
"""Part of the key: raise it when the format of entries changes."""


def is_on() -> bool:
    """Whether plans are kept. TSQL_STORED_PLANS=0 turns it off, and so does disabling the cache."""
    return os.environ.get("TSQL_STORED_PLANS") != "0" and cache_directory() is not None


def key_of(text: str, kinds: dict[str, Type], settings: tuple[Any, ...], costs: Any) -> str:
    """The name of an entry: everything that a plan depends on except the catalog."""
    parts = (FORMAT, code_identity(), text, tuple((name, str(t)) for name, t in kinds.items()), settings, costs, CORES)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def digest(catalog: Catalog, kind: str, name: str) -> str | None:
    """A digest of the catalog's answer to a lookup; None if it cannot be distinguished from another answer."""
    if kind == "macro":
        return _short(repr(catalog.macro(name)))
    if kind not in ("entry", "order"):
        return None
    entry = catalog.entry(name)
    if entry is None or isinstance(entry, View):
        return _short(repr(entry))
    if not isinstance(entry, Table):
        return None
    data = entry.data
    if kind == "order":
        return _short(repr([sorted(piece.sorted_columns) for piece in data.pieces]))
    fields = [(f.name, str(f.type), f.nullable) for f in data.schema]
    known = data.statistics()
    columns = [(c.minimum, c.maximum, c.nulls, c.distinct, c.exact) for c in known.columns.values()]
    return _short(repr((repr(entry.definition), fields, known.rows, known.bytes, columns)))


def _questions(catalog: Catalog, asked: Asked) -> list[tuple[str, str]]:
    """The lookups, and the sort columns of tables if the analysis needed them: finding these means reading rows."""
    found = list(asked)
    for kind, name in asked:
        entry = catalog.entry(name) if kind == "entry" else None
        if isinstance(entry, Table) and any("sorted_columns" in piece.__dict__ for piece in entry.data.pieces):
            found.append(("order", name))
    return found


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def keep(
    key: str, catalog: Catalog, asked: Asked, parameters: tuple[str, ...], start: int, length: int, plan: PhysicalPlan
) -> None:
    """Write a plan, if all its inputs can be verified later."""
    depends = {
        f"{kind} {name}": _opened_digest(asked[kind, name]) if kind == "open" else digest(catalog, kind, name)
        for kind, name in _questions(catalog, asked)
    }
    if any(found is None for found in depends.values()):
        return
    named = {id(catalog.lookup(name)): f"entry {name}" for kind, name in asked if kind == "entry"}
    named |= {id(source): f"open {name}" for (_, name), opened in asked.items() for source, _ in opened}
    head = json.dumps({"depends": depends, "parameters": parameters, "start": start, "length": length}).encode()

    def content() -> bytes | None:
        written = encode_if_plain(plan, lambda value: named.get(id(value)))
        return None if written is None else head + b"\n" + written

    write_later("plan", key, content, code_identity())


def _opened_digest(opened: list[tuple[Any, FileUse]]) -> str | None:
    """The files behind a call of `open_file`, in short; None if another process would not read the same there."""
    from tsql.backends.io.open import portable

    if any(portable(source) is None for source, _ in opened):
        return None
    (found, *others) = {_short(repr(use.print)) for _, use in opened}
    return None if others else found


def _open(catalog: Catalog, question: str, answer: str) -> tuple[Any, FileUse] | None:
    """The source of a call of `open_file`; None if its files are not what they were."""
    path, kind, options = json.loads(question)
    if _short(repr(fingerprint(path if isinstance(path, str) else tuple(path)))) != answer:
        return None
    with catalog.record_files() as recorder:
        source = catalog.open_file(path, kind, options)
    (use,) = recorder.files
    return (source, use) if _short(repr(use.print)) == answer else None


Found = tuple[tuple[str, ...], int, int, PhysicalPlan, tuple[FileUse, ...]]


def find(key: str, catalog: Catalog, kinds: dict[str, Type]) -> Found | None:
    """The parameters, the place of the statement in its text, the plan, and the files of an entry that still holds.
    `kinds`: the parameters that are given."""
    data = read_entry("plan", key, code_identity())
    if data is None:
        return None
    head, _, written = data.partition(b"\n")
    try:
        found = json.loads(head)
        opened: dict[str, tuple[Any, FileUse]] = {}
        for question, answer in found["depends"].items():
            kind, _, name = question.partition(" ")
            if kind == "open":
                source = _open(catalog, name, answer)
                if source is None:
                    return None
                opened[name] = source
            elif digest(catalog, kind, name) != answer:
                return None

        def resolve(named: str) -> Any:
            kind, _, name = named.partition(" ")
            return opened[name][0] if kind == "open" else catalog.lookup(name)

        plan = decode(written, resolve)
        parameters, start, length = tuple(found["parameters"]), found["start"], found["length"]
        if (
            not isinstance(plan, PhysicalPlan)
            or {*parameters} != kinds.keys()
            or not (type(start) is type(length) is int and min(start, length) >= 0)
        ):
            return None
        if not all(isinstance(step, Step) for step in plan.root.walk()) or not len(plan.columns) == len(
            plan.names
        ) == len(plan.schema):
            return None
        return parameters, start, length, plan, tuple(use for _, use in opened.values())
    except (*UNUSABLE, TsqlError):
        return None


class PlanStore:
    """The plans on disk for a session: those of its settings and this machine. `database` is its name in the session's
    queries."""

    def __init__(self, queries: QueryRunner, database: str) -> None:
        self._queries, self._database = queries, database

    @property
    def _is_used(self) -> bool:
        return self._queries.target == "local" and is_on()

    def _key(self, text: str, kinds: dict[str, Type]) -> str:
        return key_of(text, kinds, (*setting.key_of(self._queries.settings), self._database), calibrated())

    def find(
        self, text: str, origin: str | None, kinds: dict[str, Type], values: dict[str, Any], catalog: Catalog
    ) -> Prepared | None:
        """A query whose plan an earlier process has left on disk."""
        if not self._is_used:
            return None
        begun = time.perf_counter()
        with garbage.paused():
            found = find(self._key(text, kinds), catalog, kinds)
        if found is None:
            return None
        parameters, start, length, plan, files = found
        check_names(values, parameters)
        piece = Piece(text[start : start + length], start, text, origin, parameters)
        before, mine = catalog.snapshot(), {name: kinds[name] for name in parameters}

        def analyze() -> statements.Query:
            from tsql.analyze.statements import analyze as analyze_text

            catalog = Catalog.of(before)
            catalog.database = self._database
            (statement,) = analyze_text(piece.text, catalog, mine, piece.origin)
            return statement

        fields = plan.root.schema
        spent = {"parse": (time.perf_counter() - begun) * 1000, "plan": 0.0}
        return Prepared(piece, analyze, plan.names, tuple(fields[c].type for c in plan.columns), files, spent, plan)

    def keeper(
        self, piece: Piece, kinds: dict[str, Type], asked: Asked, catalog: Catalog
    ) -> Callable[[PhysicalPlan], None] | None:
        """What writes the plan of a query for later processes; None if plans are not kept."""
        if not self._is_used:
            return None
        key, version = self._key(piece.whole, kinds), catalog.version

        def write(plan: PhysicalPlan) -> None:
            # If the catalog has changed since, its answers differ from those that the analysis got.
            if catalog.version == version:
                keep(key, catalog, asked, piece.parameters, piece.start, len(piece.text), plan)

        return write
