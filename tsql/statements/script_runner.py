"""`ScriptRunner`: turns the text of statements into relations; `Session.sql` and `Session.statements` call it.

A known text is looked up: an analyzed query in the plan cache, an earlier INSERT, a plan on disk. Any other text is
split into its statements, and each is analyzed and executed (`perform.py`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tsql import python_scan
from tsql import settings as setting
from tsql.backends import Run
from tsql.catalog.catalog import Catalog
from tsql.grammar.script import Piece, split
from tsql.kernels.expr.errors import (
    CatalogError,
    ParseError,
    PlanError,
    TransactionError,
    TsqlError,
    UnknownTableError,
)
from tsql.kernels.expr.types import Type
from tsql.kernels.process import garbage
from tsql.parameters import check_names
from tsql.plan_store import PlanStore
from tsql.prepared import InsertCache, PlanCache, RepeatedInsert
from tsql.relation import Relation, too_much
from tsql.running import AtWork
from tsql.statements.named import NamedStatements

if TYPE_CHECKING:
    from tsql.session import Session


class ScriptRunner:
    """Executes the statements of a session and keeps its caches: `plans` and `inserts` by text, `named` by the name of
    PREPARE, and `stored`, the plans on disk."""

    def __init__(self, session: Session) -> None:
        self.session, self.queries = session, session._queries
        self.plans = PlanCache()
        self.inserts = InsertCache()
        self.named = NamedStatements()
        self.stored = PlanStore(session._queries, session.catalog.database)

    @property
    def catalog(self) -> Catalog:
        """What names stand for now; `close()` gives the session another one."""
        return self.session.catalog

    def sql(self, text: str, kinds: dict[str, Type], values: dict[str, Any], origin: str | None) -> Relation:
        """The result of the last statement of a text, with the types and the stored values of its parameters."""
        key = (text, origin, tuple(kinds.items()), self.catalog.version, setting.key_of(self.queries.settings))
        prepared = self.plans.find(key)
        if prepared is not None:
            self.session.transactions.check(prepared)
            return self.queries.relation(prepared, values, cached=True)
        again = self.inserts.find(key[:3], self.catalog)
        if again is not None:
            return self._insert_again(again, values)
        stored = self.stored.find(text, origin, kinds, values, self.catalog)
        if stored is not None:
            self.session.transactions.check(stored)
            self.plans.keep(key, self.catalog.version, stored)
            return self.queries.relation(stored, values)
        pieces = _split(text, origin, values)
        for piece in pieces[:-1]:
            for _ in self._statement(piece, kinds, values).batches():
                pass
        return self._statement(pieces[-1], kinds, values, key if len(pieces) == 1 else None)

    def statements(
        self, text: str, kinds: dict[str, Type], values: dict[str, Any], origin: str | None
    ) -> Iterator[Relation]:
        """The results of all statements of a text; each is looked at when its result is asked for."""
        pieces = _split(text, origin, values)
        if len(pieces) == 1:
            yield self.sql(text, kinds, values, origin)
            return
        for piece in pieces:
            yield self._statement(piece, kinds, values)

    def _insert_again(self, known: RepeatedInsert, values: dict[str, Any]) -> Relation:
        from tsql.statements.perform import StatementContext, perform

        check_names(values, list(known.piece.parameters))
        with AtWork(Run(settings=self.queries.settings), self.queries.running):
            try:
                self.session.transactions.check(known.statement)
                return perform(StatementContext(self, known.piece, values), known.statement)
            except TsqlError as error:
                self.session.transactions.fail()
                raise known.piece.relocate(error) from error.__cause__

    def _statement(self, piece: Piece, kinds: dict[str, Type], values: dict[str, Any], key: Any = None) -> Relation:
        """The result of one statement. `key`: that of the plan cache, if the statement is all of its text."""
        with AtWork(Run(settings=self.queries.settings), self.queries.running):
            return self._analyzed(piece, kinds, values, key)

    def _analyzed(self, piece: Piece, kinds: dict[str, Type], values: dict[str, Any], key: Any) -> Relation:
        # Not needed for a query that is found.
        with garbage.paused():
            from tsql.analyze import kinds as statements
            from tsql.analyze.statements import analyze
            from tsql.statements.perform import StatementContext, perform

        transactions = self.session.transactions
        mine = {name: kinds[name] for name in piece.parameters}
        begun, version, started_ms = time.perf_counter(), self.catalog.version, self.queries.start_ms
        with self.catalog.record_files() as recorder, garbage.paused():
            try:
                found = analyze(piece.text, self.catalog, mine, piece.origin)
            except TsqlError as error:
                transactions.fail()
                if isinstance(error, UnknownTableError) and error.table:
                    error.hint = python_scan.hint(error.table, self.queries.settings.python_scan) or error.hint
                raise piece.relocate(error) from error.__cause__
            except (RecursionError, MemoryError) as error:
                raise piece.relocate(too_much(error)) from error
        if len(found) != 1:
            raise PlanError(
                f"expected one statement, found {len(found)}",
                position=piece.start,
                text=piece.whole,
                origin=piece.origin,
            )
        start_ms = self.queries.start_ms - started_ms
        spent = {"parse": (time.perf_counter() - begun) * 1000 - start_ms}
        if start_ms:
            # The first name that is looked up among Spark's starts Spark.
            spent["start"] = start_ms
        used = {name: values[name] for name in piece.parameters}
        context = StatementContext(self, piece, used, tuple(recorder.files), spent)
        try:
            transactions.check(found[0])
            if not isinstance(found[0], statements.Change):
                if key is not None:
                    context.key = key
                    context.keep = self.stored.keeper(piece, kinds, recorder.asked, self.catalog)
                return perform(context, found[0])
            with transactions.lock:
                if self.catalog.version != version:
                    # Another thread has changed the catalog since: row positions, for example, would be those of an
                    # older version.
                    found = analyze(piece.text, self.catalog, mine, piece.origin)
                result = perform(context, found[0])
                if key is not None:
                    self.inserts.keep(key[:3], piece, found[0], self.catalog)
                return result
        except TransactionError as error:
            raise piece.relocate(error) from error.__cause__
        except TsqlError as error:
            transactions.fail()
            if error.text is None and error.position is None:
                error.position = getattr(found[0], "position", None)
            raise piece.relocate(error) from error.__cause__


def _split(text: str, origin: str | None, values: dict[str, Any]) -> list[Piece]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParseError(
            "half of a surrogate pair is no character", position=error.start, text=text, origin=origin
        ) from error
    pieces = split(text, origin)
    if not pieces:
        raise CatalogError("there is no statement in the text")
    places = {
        name: place
        for piece in reversed(pieces)
        for name, place in zip(reversed(piece.parameters), reversed(piece.places), strict=True)
    }
    check_names(values, [name for piece in pieces for name in piece.parameters], places, text, origin)
    return pieces
