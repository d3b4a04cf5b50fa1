"""The syntax nodes of MATCH_RECOGNIZE, as `tsql/grammar/time/match.py` and `tsql/grammar/time/pattern.py` make them."""

from __future__ import annotations

from sqlglot import exp


class RowMatch(exp.MatchRecognize):
    """input MATCH_RECOGNIZE (..): it is the `this` of an exp.Table, which has the alias of the result.

    this: the input, `exp.Table` or `exp.Subquery`, with its own alias.
    partition_by: expressions.  order: exp.Order. measures: exp.Alias each; in them, and in `define`, a qualified column
    `A.price` is that of a pattern variable or of a SUBSET, and
        PREV, NEXT, FIRST, LAST, CLASSIFIER and MATCH_NUMBER are calls like any other (`Call`, lower case), perhaps
        below a MatchSemantics.
    rows: exp.Var, one of ROWS_PER_MATCH, or nothing.  after: a SkipTo, or nothing (PAST LAST ROW).
    pattern: a tree of the classes below.  within: an interval, or nothing.
    subset: Subset each.  define: exp.Alias each (`alias` is the variable); a variable without one matches every row.
    """

    arg_types = {
        **exp.MatchRecognize.arg_types,
        "this": True,
        "pattern": True,
        "within": False,
        "subset": False,
        "define": True,
    }


ROWS_PER_MATCH = (
    "ONE ROW PER MATCH",
    "ALL ROWS PER MATCH",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
)


class SkipTo(exp.Expression):
    """AFTER MATCH SKIP ..: `this` is exp.Var PAST LAST ROW, TO NEXT ROW, TO FIRST or TO LAST (which is what a bare TO
    means), and `variable` the exp.Identifier of the last two."""

    arg_types = {"this": True, "variable": False}


class Subset(exp.Expression):
    """SUBSET this = (expressions): exp.Identifier all."""

    arg_types = {"this": True, "expressions": True}


class MatchSemantics(exp.Expression):
    """FINAL call or RUNNING call; `kind` is exp.Var FINAL or RUNNING."""

    arg_types = {"this": True, "kind": True}


class Pattern(exp.Expression):
    """Base of the nodes of a PATTERN."""


class PatternVariable(Pattern):
    """A variable: `this` is an exp.Identifier."""


class PatternSequence(Pattern):
    """Parts one after the other; no parts is the empty pattern `()`. No part is a sequence itself."""

    arg_types = {"expressions": False}


class PatternChoice(Pattern):
    """Alternatives, the first preferred; at least two, and none is a choice itself."""

    arg_types = {"expressions": True}


class PatternRepeat(Pattern):
    """this{low, high}: `low` and `high` are ints, no `high` is no bound; `reluctant` is True for a `?` behind the
    quantifier."""

    arg_types = {"this": True, "low": True, "high": False, "reluctant": False}


class PatternAnchor(Pattern):
    """`^` or `$`, the start or the end of the partition: `this` is exp.Var START or END."""
