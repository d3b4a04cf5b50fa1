"""String functions that count in grapheme clusters, as a reader does: reverse, length_grapheme, substring_grapheme,
..."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import UINT32, Text, built, check_range
from tsql.kernels.runtime.text.graphemes import grapheme_length, grapheme_substring, grapheme_table, str_reverse
from tsql.kernels.runtime.text.utf8 import sliced


@function(
    "reverse",
    args=(VARCHAR,),
    returns=VARCHAR,
    lazy=True,
    examples=(("reverse('hello')", "olleh"), ("reverse('ae\u0301b')", "be\u0301a"), ("reverse('')", "")),
)
def reverse(k: PipelineKernel, s: Datum) -> Text:
    """The characters in reverse order; a combining mark stays with its letter."""
    return built(k, str_reverse, k.static(grapheme_table()), s.ptr, s.len)


@function(
    "length_grapheme",
    args=(VARCHAR,),
    returns=BIGINT,
    lazy=True,
    examples=(("length_grapheme('🤦🏼‍♂️🤦🏽‍♀️')", 2), ("length_grapheme('')", 0)),
)
def length_grapheme(k: PipelineKernel, s: Datum) -> Val:
    """The number of grapheme clusters."""
    return grapheme_length(k, k.static(grapheme_table()), s.ptr, s.len)


def _part(k: PipelineKernel, s: Datum, offset: Val, length: Val) -> Text:
    return sliced(k, s.ptr, grapheme_substring(k, k.static(grapheme_table()), s.ptr, s.len, offset, length))


@function(
    "substring_grapheme",
    args=(VARCHAR, BIGINT, BIGINT),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("substring_grapheme('🦆🤦🏼‍♂️🤦🏽‍♀️🦆', 3, 2)", "🤦🏽‍♀️🦆"),),
)
def substring_grapheme(k: PipelineKernel, s: Datum, offset: Datum, length: Datum) -> Text:
    """As substr, in grapheme clusters."""
    check_range(k, offset.value, "offset")
    check_range(k, length.value, "length")
    return _part(k, s, offset.value, length.value)


@function(
    "substring_grapheme",
    args=(VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("substring_grapheme('a🤦🏼‍♂️b', 2)", "🤦🏼‍♂️b"),),
)
def substring_grapheme_from(k: PipelineKernel, s: Datum, offset: Datum) -> Text:
    check_range(k, offset.value, "offset")
    return _part(k, s, offset.value, k.i64(UINT32))


@function(
    "left_grapheme",
    args=(VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("left_grapheme('🤦🏼‍♂️🤦🏽‍♀️', 1)", "🤦🏼‍♂️"),),
)
def left_grapheme(k: PipelineKernel, s: Datum, count: Datum) -> Text:
    """As left, in grapheme clusters."""
    k.fail(count.value > UINT32, f"Substring length outside of supported range (> {UINT32})")
    kept = grapheme_length(k, k.static(grapheme_table()), s.ptr, s.len) + count.value
    return _part(k, s, k.i64(1), k.select(count.value < 0, k.max(kept, k.i64(0)), count.value))


@function(
    "right_grapheme",
    args=(VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    examples=(("right_grapheme('🤦🏼‍♂️🤦🏽‍♀️', 1)", "🤦🏽‍♀️"),),
)
def right_grapheme(k: PipelineKernel, s: Datum, count: Datum) -> Text:
    """As right, in grapheme clusters."""
    total = grapheme_length(k, k.static(grapheme_table()), s.ptr, s.len)
    # The negation of the lowest number is itself: everything is cut off.
    cut = k.select(
        count.value < 0, k.select(-count.value < 0, total, -count.value), k.max(total - count.value, k.i64(0))
    )
    return _part(k, s, k.min(cut, total) + 1, total)
