"""Chooses the kernel of a call, by the function and its frame: the only place that decides it. `explain` prints the
choice.

If the frame begins with the partition, rows are only added. If both ends move forward, rows are removed where that is
exact; where states merge, two stacks are used. Ends that may move back need a tree of states. All other calls fold each
frame from scratch."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.aggregates.base import Body
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.aggregates.distinct import Mode
from tsql.kernels.aggregates.quantiles import DiscRecords, Mad, Words
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.windows.access import FirstValue, LastValue, NthValue, ShiftedValue
from tsql.kernels.windows.base import Evaluator
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.folds import BodyFold, DistinctFold, PickFold, StampedFold, choice_of
from tsql.kernels.windows.modes import ModeFold
from tsql.kernels.windows.naive import Naive
from tsql.kernels.windows.ranked import RankedFold
from tsql.kernels.windows.ranking import RANKING
from tsql.kernels.windows.registry import WINDOW_FUNCTIONS
from tsql.kernels.windows.running import OverFrame, RunningFrame
from tsql.kernels.windows.sessions import SESSIONS
from tsql.kernels.windows.sliding import Sliding
from tsql.kernels.windows.stacks import TwoStacks
from tsql.kernels.windows.stitch_chain import StitchChain
from tsql.kernels.windows.tree import Tree

ONCE_IS_ENOUGH = {"min", "max", "bool_and", "every", "bool_or", "bit_and", "bit_or", "any_value"}
"""Aggregates for which duplicates do not matter: DISTINCT changes nothing."""

FROM_FRAME = {"first_value": FirstValue, "last_value": LastValue, "nth_value": NthValue}


def code_column(name: str) -> Column:
    """The column with the codes of the argument values of the call `name`: equal values have equal codes, in value
    order."""
    return Column(f"#code:{name}", BIGINT, False)


def sample_column(name: str) -> Column:
    """The column that holds, in the row with a code's number, the number of a row with this code."""
    return Column(f"#sample:{name}", BIGINT, False)


def simplified(call: WindowCall) -> WindowCall:
    """The call with DISTINCT and ORDER BY only where they matter, and approximate counts as exact ones."""
    if call.name in WINDOW_FUNCTIONS:
        return call
    if call.name == "approx_count_distinct":
        return replace(call, name="count", distinct=True)
    if call.distinct and call.name in ONCE_IS_ENOUGH:
        call = replace(call, distinct=False)
    if call.order and not _body(call).wants_order:
        call = replace(call, order=())
    return call


def _body(call: WindowCall) -> Body:
    return plain_body(call.aggregate())


def _is_ranked(call: WindowCall) -> bool:
    """Whether a call is a quantile that can be answered from the order of its values."""
    frame = call.frame
    whole = frame.start.kind == frame.end.kind == "unbounded" and not frame.exclude
    return (
        isinstance(_body(call), Words | DiscRecords)
        and not isinstance(_body(call), Mad)
        and frame.is_monotonic
        and not whole
    )


def _is_tournament(call: WindowCall) -> bool:
    """Whether a call is a mode that a tournament of the values can compute."""
    return isinstance(_body(call), Mode) and not call.order and call.frame.is_monotonic and not call.frame.exclude


def needs_codes(call: WindowCall) -> bool:
    """Whether the kernel of a call reads `code_column` and `sample_column`."""
    call = simplified(call)
    return call.name not in WINDOW_FUNCTIONS and (
        call.distinct or (choice_of(call) is None and (_is_ranked(call) or _is_tournament(call)))
    )


def evaluator(name: str, call: WindowCall, order: tuple[SortKey, ...]) -> Evaluator:
    """The kernel of a call; `order` is that of the window."""
    call = simplified(call)
    if call.name in RANKING:
        return RANKING[call.name](call)
    if call.name in SESSIONS:
        return SESSIONS[call.name](call)
    if call.name == "stitch_chain":
        return StitchChain(call, order)
    if call.name in ("lag", "lead"):
        return ShiftedValue(call, call.name == "lead")
    if call.name in FROM_FRAME and not call.order:
        return FROM_FRAME[call.name](call, order)
    return _aggregate(name, call, order)


def _aggregate(name: str, call: WindowCall, order: tuple[SortKey, ...]) -> OverFrame:
    frame = call.frame
    from_start = frame.start.kind == "unbounded" and frame.end.is_constant and not frame.exclude
    choice = choice_of(call)
    if choice is not None:
        return _merging(call, order, PickFold(call, choice), from_start)
    body = _body(call)
    if call.distinct:
        if frame.is_monotonic and body.removable and not from_start:
            return Sliding(call, order, DistinctFold(call, code_column(name)))
        return (RunningFrame if from_start else Naive)(call, order, StampedFold(call, code_column(name)))
    if _is_ranked(call):
        return Sliding(call, order, RankedFold(call, code_column(name), sample_column(name)))
    if _is_tournament(call):
        return Sliding(call, order, ModeFold(call, code_column(name)))
    fold = BodyFold(call)
    if not body.decomposable or body.release():
        return (RunningFrame if from_start else Naive)(call, order, fold)
    if body.removable and frame.is_monotonic and not from_start:
        return Sliding(call, order, fold)
    return _merging(call, order, fold, from_start)


def _merging(call: WindowCall, order: tuple[SortKey, ...], fold: BodyFold | PickFold, from_start: bool) -> OverFrame:
    """A fold whose states merge."""
    if from_start:
        return RunningFrame(call, order, fold)
    return (TwoStacks if call.frame.is_monotonic else Tree)(call, order, fold)
