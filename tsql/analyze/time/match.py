"""MATCH_RECOGNIZE in FROM: syntax → a `Match` node, and a projection of the measures above it.

The node computes single reads of a match (FIRST, LAST, an aggregate ..); the projection computes MEASURES from them.
The result has the columns of PARTITION BY and the measures. With ALL ROWS PER MATCH it has the columns of PARTITION BY,
of ORDER BY, the measures and the rest of the input, as in the standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.names.columns import display_name
from tsql.analyze.scope import AnalyzedRelation, Names, Scope, ScopeField, plan_name
from tsql.analyze.subquery import Level
from tsql.grammar.time.match_nodes import (
    MatchSemantics,
    Pattern,
    PatternAnchor,
    PatternChoice,
    PatternRepeat,
    PatternSequence,
    PatternVariable,
    RowMatch,
)
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN, INTEGER, INTERVAL, NULL, TIMESTAMP
from tsql.kernels.patterns import tree
from tsql.kernels.patterns.program import PatternProgram, TooLarge
from tsql.kernels.patterns.reads import MatchNumber, Read, replace_reads
from tsql.kernels.patterns.spec import MatchSpec, Skip
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.calls import sort_key
from tsql.planner.bind.match import MatchBinder, MatchNames
from tsql.planner.bind.query_text import is_all, position_of
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import coerce
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.match import Match

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer

_OUTPUTS = {
    "ONE ROW PER MATCH": "one",
    "ALL ROWS PER MATCH": "all",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES": "all",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES": "matched",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS": "unmatched",
}
_TIMES = ("TIMESTAMP", "TIMESTAMPTZ", "DATE")


def matched(queries: QueryAnalyzer, node: RowMatch, environment: Any) -> AnalyzedRelation:
    """The relation of `input MATCH_RECOGNIZE (..)`."""
    return _Analyzer(queries, node, environment).relation()


class _Analyzer:
    """Analyzes one MATCH_RECOGNIZE."""

    def __init__(self, queries: QueryAnalyzer, node: RowMatch, environment: Any):
        self.queries, self.node = queries, node
        table = queries.table(node.this, environment)
        self.input = table.relation
        if self.input.life is not None:
            raise queries.error(
                "MATCH_RECOGNIZE is over rows in an order: the rows of its input have lifetimes",
                node,
                "match the table itself, ORDER BY its start",
            )
        self.scope = Scope((table,), queries.source)
        self.level = Level(queries, environment, self.input.plan.schema.names)
        self.taken = Names((*self.input.plan.schema.names, *queries.taken))
        self.keys: list[ScopeField] = []
        pattern = node.args["pattern"]
        variables: dict[str, str] = {}
        for found in pattern.find_all(PatternVariable):
            variables.setdefault(found.name.lower(), found.name)
        subsets = {
            s.name.lower(): tuple(variables[m.name.lower()] for m in s.expressions)
            for s in node.args.get("subset") or ()
        }
        self.names = MatchNames(queries.source, self._column, variables, subsets, queries.parameters)

    def _column(self, node: exp.Column) -> Expr:
        found = self.scope.find(node) or self.level.outside(node)
        if found is None:
            raise self.scope.unknown(node)
        return found

    def relation(self) -> AnalyzedRelation:
        """The node, the projection above it, and the columns that are shown."""
        by = self._partition()
        order = self._order()
        within = self._within(order)
        measures, computed = self._measures()
        output = self._output()
        if output == "unmatched" and any(not isinstance(expr, Column) for _, expr in computed):
            measures, computed = self._only_matched(measures, computed)
        if output == "one" and not by and not measures:
            if not computed:
                raise self.queries.error("MATCH_RECOGNIZE has no columns: it needs MEASURES or PARTITION BY", self.node)
            measures = [(self.taken.unique("match_number"), MatchNumber())]
        spec = MatchSpec(by, order, self._pattern(), self._define(), tuple(measures), output, self._skip(), within)
        plan: logical.Node = Match(self.input.plan, spec)
        if all(isinstance(expr, Column) for _, expr in computed):
            return AnalyzedRelation(
                plan, self._shown(spec, [ScopeField(name, expr.name, expr.type) for name, expr in computed])
            )
        shown = [ScopeField(name, self.taken.unique(name), expr.type) for name, expr in computed]
        kept = [(f.name, Column(f.name, f.type, f.nullable)) for f in plan.schema if f.name not in dict(measures)]
        plan = logical.Project(
            plan, (*kept, *((field.column, expr) for field, (_, expr) in zip(shown, computed, strict=True)))
        )
        return AnalyzedRelation(plan, self._shown(spec, shown))

    def _shown(self, spec: MatchSpec, measures: list[ScopeField]) -> tuple[ScopeField, ...]:
        keys = self.keys
        if spec.is_one_row:
            return (*keys, *measures)
        ordering = {key.expr.name for key in spec.order if isinstance(key.expr, Column)}
        first = {field.column for field in keys}
        ordered = [f for f in self.input.fields if f.column in ordering and f.column not in first]
        first |= {f.column for f in ordered}
        return (
            *keys,
            *ordered,
            *measures,
            *(f for f in self.input.fields if f.column not in first and f.column not in ordering),
        )

    def _binder(self, clause: str) -> Binder:
        return Binder(self.queries.source, self._column, clause=clause, parameters=self.queries.parameters)

    def _partition(self) -> tuple[Column, ...]:
        """The columns of PARTITION BY; what is computed becomes a column of the input."""
        binder = self._binder("PARTITION BY")
        computed: list[tuple[str, Expr]] = []
        for part in self.node.args.get("partition_by") or ():
            expr = binder.bind_typed(part)
            name = display_name(part, self.queries.source.text)
            if not isinstance(expr, Column):
                computed.append((self.taken.unique(plan_name(name)), expr))
                expr = Column(computed[-1][0], expr.type)
            self.keys.append(ScopeField(name, expr.name, expr.type, expr.nullable))
        if computed:
            plan = self.input.plan
            columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in plan.schema)
            self.input = AnalyzedRelation(logical.Project(plan, (*columns, *computed)), self.input.fields)
        self.keys = list({field.column: field for field in reversed(self.keys)}.values())[::-1]
        return tuple(field.to_column() for field in self.keys)

    def _order(self) -> tuple[SortKey, ...]:
        order = self.node.args.get("order")
        binder = self._binder("ORDER BY")
        keys = []
        for item in order.expressions if order is not None else ():
            if is_all(item.this):
                raise self.queries.error("Cannot ORDER BY ALL in MATCH_RECOGNIZE", self.node)
            key = sort_key(binder, item)
            keys.append(
                SortKey(coerce(key.expr, INTEGER), key.descending, key.nulls_first) if key.expr.type == NULL else key
            )
        return tuple(keys)

    def _within(self, order: tuple[SortKey, ...]) -> Expr | None:
        """The time at which a match that starts with a row must have ended."""
        node = self.node.args.get("within")
        if node is None:
            return None
        interval = (
            self._binder("WITHIN").bind_as(node, INTERVAL) if not any(True for _ in node.find_all(exp.Column)) else None
        )
        if interval is None:
            raise self.queries.error("WITHIN takes a constant interval", node)
        if not order or order[0].expr.type.name not in _TIMES:
            found = f"it is {order[0].expr.type}" if order else "there is no ORDER BY"
            raise self.queries.error("WITHIN needs a time as the first expression of ORDER BY", node, found)
        key = order[0].expr
        time = coerce(key, TIMESTAMP) if key.type.name == "DATE" else key
        return Call("-" if order[0].descending else "+", (time, interval), time.type, position_of(node))

    def _output(self) -> str:
        rows = self.node.args.get("rows")
        return "one" if rows is None else _OUTPUTS[rows.name]

    def _skip(self) -> Skip:
        after = self.node.args.get("after")
        if after is None:
            return Skip()
        variable = after.args.get("variable")
        named = () if variable is None else self.names.of(variable.name)
        return Skip(after.this.name.lower(), named, "" if variable is None else variable.name, position_of(after))

    def _pattern(self) -> tree.Pattern:
        node = self.node.args["pattern"]
        pattern = self._tree(node)
        try:
            PatternProgram(pattern)
        except TooLarge as error:
            raise self.queries.error(str(error), node, "use smaller bounds, or * and +") from None
        return pattern

    def _tree(self, node: Pattern) -> tree.Pattern:
        match node:
            case PatternVariable():
                return tree.Variable(self.names.variables[node.name.lower()])
            case PatternAnchor():
                return tree.Anchor(node.name == "END")
            case PatternSequence():
                return tree.Sequence(tuple(map(self._tree, node.expressions)))
            case PatternChoice():
                return tree.Choice(tuple(map(self._tree, node.expressions)))
            case PatternRepeat():
                return tree.Repeat(
                    self._tree(node.this), node.args["low"], node.args.get("high"), bool(node.args.get("reluctant"))
                )
        raise AssertionError(f"no pattern: {type(node).__name__}")

    def _define(self) -> tuple[tuple[str, Expr], ...]:
        found = []
        for item in self.node.args["define"]:
            variable = self.names.variables[item.alias.lower()]
            found.append((variable, MatchBinder(self.names, variable).condition(_with_calls(item.this))))
        return tuple(found)

    def _measures(self) -> tuple[list[tuple[str, Read]], list[tuple[str, Expr]]]:
        """The reads of all measures under names of the plan, and what each measure makes of them."""
        binder = MatchBinder(self.names, None)
        reads: dict[Read, str] = {}
        computed: list[tuple[str, Expr]] = []
        seen: set[str] = set()
        for item in self.node.args.get("measures") or ():
            name = item.alias
            if name.lower() in seen:
                raise self.queries.error(f'MEASURES gives "{name}" twice', item.args["alias"])
            seen.add(name.lower())
            expr = binder.measure(_with_calls(item.this))

            def column(read: Read, name: str = name, alone: bool = isinstance(expr, Read)) -> Expr:
                if read not in reads:
                    reads[read] = self.taken.unique(name if alone else plan_name(read.text()))
                return Column(reads[read], read.type, position=getattr(read, "position", None))

            computed.append((name, replace_reads(expr, column)))
        return [(name, read) for read, name in reads.items()], computed

    def _only_matched(
        self, measures: list[tuple[str, Read]], computed: list[tuple[str, Expr]]
    ) -> tuple[list[tuple[str, Read]], list[tuple[str, Expr]]]:
        """All measures are NULL in unmatched rows, including constants and expressions that turn NULL into a value."""
        number = next((name for name, read in measures if isinstance(read, MatchNumber)), None)
        if number is None:
            number = self.taken.unique("match_number")
            measures = [*measures, (number, MatchNumber())]
        is_alone = Call("is_null", (Column(number, BIGINT),), BOOLEAN)
        guarded = [
            (n, e if isinstance(e, Column) else Case(((is_alone, Literal(None, e.type)),), e)) for n, e in computed
        ]
        return measures, guarded


def _with_calls(node: exp.Expr) -> exp.Expr:
    """RUNNING f(..) and FINAL f(..) as calls `running(f(..))`, which is what `planner/bind/match.py` reads."""

    def change(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, MatchSemantics):
            return part
        call = CallNode(this=part.args["kind"].name.lower(), expressions=[part.this.copy()])
        call.meta["at"] = position_of(part)
        return call

    return node.copy().transform(change, copy=False)
