"""The texts of the page as statements: read, checked against the read-only switch, and turned into relations.

`Script` holds the statements of a text. The last one that gives rows is shown: if it is a query, it gets the filters of
the page and asks for snapshots. Both are added to its tree and never to its text, so errors stay at their places. The
other statements run as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from sqlglot import exp

from tsql import settings as setting
from tsql.analyze import kinds
from tsql.analyze.statements import Analyzer
from tsql.grammar.parser import changes as parser_changes
from tsql.grammar.parser import statements as parser
from tsql.grammar.parser.statements import Parsed, parse
from tsql.grammar.script import Piece, split
from tsql.grammar.time.nodes import Progressive, ShowStreams
from tsql.kernels.expr.errors import CatalogError, ParseError, PlanError, TsqlError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner import PhysicalPlan
from tsql.planner.progressive.reasons import FINAL_ONLY
from tsql.prepared import PlanCache, Prepared
from tsql.relation import Relation, too_much
from tsql.session import Session
from tsql.studio.filters import Filter, add_filters

EVERY_PERCENT = 2
"""How often a query that says nothing of it is to show snapshots."""

SHOWS = (exp.Query, exp.Values, parser.Explain, parser.ShowTables, ShowStreams, parser.DescribeQuery,
         parser_changes.SummarizeQuery, parser.ExecutePlan, parser.ExecuteStatement)  # fmt: skip
"""Statements that give rows. (So do changes with RETURNING.)"""

READS = (exp.Query, exp.Values, parser.Explain, parser.ShowTables, ShowStreams, parser.DescribeQuery,
         parser_changes.SummarizeQuery, parser.ExecutePlan, parser.DeallocateStatement)  # fmt: skip
"""Statements that write nothing. Those that hold another one, and SET, are asked further (`Script.refuse_writes`)."""

WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Copy)
"""What no statement that reads may hold, whatever the engine makes of it."""

HARMLESS_SETTINGS = frozenset({"threads", "shards", "batch_rows", "small_rows", "optimizer", "timezone"})
"""Settings that a read-only studio lets the page change. With a memory limit (`spill_after`, too) queries write what
does not fit, and `temp_directory` says where."""


@dataclass(frozen=True)
class Statement:
    """One statement: its place in the text, and its tree."""

    piece: Piece
    parsed: Parsed

    @property
    def node(self) -> exp.Expr:
        return self.parsed.node

    @property
    def gives_rows(self) -> bool:
        return isinstance(self.node, SHOWS) or self.node.args.get("returning") is not None

    @property
    def is_query(self) -> bool:
        return isinstance(self.node, exp.Query | exp.Values)

    @property
    def words(self) -> str:
        """What the statement is, for a message."""
        first = self.parsed.tokens[0].text.upper()
        second = self.parsed.tokens[1].text.upper() if len(self.parsed.tokens) > 1 else ""
        return f"{first} {second}" if first in ("CREATE", "DROP", "ALTER", "COMPILE") else first

    @contextmanager
    def placed(self) -> Iterator[None]:
        """A context whose errors are at their places in the whole text."""
        try:
            yield
        except TsqlError as error:
            if error.text is None and error.position is None:
                error.position = self.parsed.tokens[0].start
            raise self.piece.relocate(error) from error.__cause__
        except (RecursionError, MemoryError) as error:
            raise self.piece.relocate(too_much(error)) from error


@dataclass(frozen=True)
class Shown:
    """A relation that is shown, with its plan if it has one. why: why it has only one snapshot, if more were wanted.
    notes: what the user is told of the request."""

    relation: Relation
    plan: PhysicalPlan | None = None
    why: str | None = None
    notes: tuple[str, ...] = field(default=())


class Known(Prepared):
    """A query with its filters, as it was asked for: whether snapshots were, and what the user is told of the
    filters."""

    def __init__(self, statement: Statement, session: Session, filters: Sequence[Filter], progressive: bool):
        parsed = statement.parsed
        self.asked = progressive and _ask_for_snapshots(parsed.node)
        with session.catalog.record_files() as recorder:
            self.told = tuple(add_filters(parsed, session.catalog, filters))
            found = analyzed(parsed, session)
        assert isinstance(found, kinds.Query)
        names, types = tuple(found.plan.names), tuple(f.type for f in found.plan.schema)
        super().__init__(statement.piece, lambda: found, names, types, tuple(recorder.files))


class Script:
    """The statements of a text. `plans` finds queries again that have run before."""

    def __init__(self, session: Session, text: str, read_only: bool = False, plans: PlanCache | None = None):
        self.session, self.text, self.plans = session, text, plans
        self.statements = [_parsed(piece) for piece in _pieces(text)]
        if read_only:
            for statement in self.statements:
                self.refuse_writes(statement)
        with_rows = [number for number, one in enumerate(self.statements) if one.gives_rows]
        self.shown = with_rows[-1] if with_rows else len(self.statements) - 1
        """The number of the statement whose result is shown."""

    def refuse_writes(self, statement: Statement) -> None:
        """Raise if a statement, by its kind, might write."""
        with statement.placed():
            if not self._reads(statement.node):
                raise CatalogError(
                    f"the studio is read-only: {statement.words} is refused",
                    position=statement.parsed.tokens[0].start,
                    text=statement.piece.text,
                    hint="tsql studio without --read-only allows it",
                )

    def _reads(self, node: exp.Expr) -> bool:
        match node:
            case parser.SetOption():
                return node.name.lower() in HARMLESS_SETTINGS
            case parser.PrepareStatement():
                return self._reads(node.args["statement"])
            case parser.ExecuteStatement():
                text = self.session._scripts.named.text_of(node.name)
                return text is None or all(self._reads(one.node) for one in parse(text))
        return isinstance(node, READS) and node.find(*WRITES) is None

    def query(self, statement: Statement, filters: Sequence[Filter] = (), progressive: bool = False) -> Shown:
        """A query that is to run, planned."""
        session, catalog = self.session, self.session.catalog
        key = (self.text, statement.piece.start, tuple(filters), progressive, catalog.version,
               setting.key_of(session.settings))  # fmt: skip
        with statement.placed():
            known = None if self.plans is None else self.plans.find(key)
            if known is None:
                try:
                    known = Known(statement, session, filters, progressive)
                except TsqlError:
                    session.transactions.fail()
                    raise
                if self.plans is not None:
                    self.plans.keep(key, key[4], known)
            assert isinstance(known, Known)
            session.transactions.check(known)
            relation = session._queries.relation(known, {})
            plan = session._queries.plan(known)
        why = next((note for note in plan.notes if note.startswith(FINAL_ONLY)), None)
        return Shown(relation, plan, why if known.asked else None, known.told)

    def relation(self, statement: Statement) -> Relation:
        """The result of a statement as it is written; what is no query has run when this returns."""
        try:
            return self.session.sql(statement.piece.text)
        except TsqlError as error:
            raise moved(error, statement.piece) from error.__cause__


def moved(error: TsqlError, piece: Piece) -> TsqlError:
    """An error of the text of a statement as one of the whole text."""
    if error.text == piece.text:
        error.position = None if error.position is None else error.position + piece.start
        error.text = piece.whole
    return error


def analyzed(parsed: Parsed, session: Session) -> kinds.Statement:
    """The statement of a tree, bound against the catalog."""
    try:
        with deep_recursion():
            return Analyzer(parsed, session.catalog, {}).statement()
    except TsqlError as error:
        if error.position is None and error.text in (None, parsed.source.text):
            error.position = parsed.tokens[0].start
        raise error.locate(parsed.source.text) from None


def check(session: Session, text: str, read_only: bool) -> None:
    """Raise the first error of a text. Nothing runs: what stands behind a statement that changes the catalog is parsed
    only, since its names may not be there yet."""
    script = Script(session, text, read_only)
    for statement in script.statements:
        with statement.placed():
            found = analyzed(statement.parsed, session)
        if isinstance(found, kinds.Change | kinds.Prepare | kinds.Set | kinds.SaveTable | kinds.KeepDataset):
            return


def planned(session: Session, text: str) -> PhysicalPlan:
    """The plan of the last query of a text."""
    script = Script(session, text)
    statement = script.statements[script.shown]
    if not statement.is_query:
        raise PlanError(
            f"{statement.words} has no plan", position=statement.parsed.tokens[0].start + statement.piece.start,
            text=text,
        )  # fmt: skip
    with statement.placed():
        return session._queries.plan(Known(statement, session, (), False))


def _pieces(text: str) -> list[Piece]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParseError("half of a surrogate pair is no character", position=error.start, text=text) from error
    pieces = split(text)
    if not pieces:
        raise ParseError("there is no statement in the text", position=0, text=text)
    for piece in pieces:
        if piece.parameters:
            place = piece.places[0]
            raise ParseError("the studio gives parameters no values", position=place, text=text,
                             hint="write the value in its place")  # fmt: skip
    return pieces


def _parsed(piece: Piece) -> Statement:
    try:
        found = parse(piece.text)
        if len(found) != 1:
            raise ParseError("expected one statement", position=0, text=piece.text)
    except TsqlError as error:
        raise piece.relocate(error.locate(piece.text)) from error.__cause__
    except RecursionError as error:
        raise piece.relocate(ParseError("nested too deeply", position=0, text=piece.text)) from error
    return Statement(piece, found[0])


def _ask_for_snapshots(node: exp.Expr) -> bool:
    """Add PROGRESSIVE to a query that says nothing of when its result is shown; whether it asks for snapshots now."""
    if not isinstance(node, exp.Query) or node.args.get("emit") is not None:
        return False
    if node.args.get("progressive") is None:
        every = exp.Literal.number(EVERY_PERCENT)
        node.set("progressive", Progressive(every=every, unit=exp.Var(this="PERCENT")))
    return True
