"""Which rows around its own a call looks at, if that is known in advance: what a walk over blocks must have in memory.

Ranks need only the bounds of partitions and peers; lag and lead with a constant distance one row; frames of ROWS with
constant ends the rows in between. A frame that begins with the partition is a state carried from block to block, if the
aggregate's state is numbers. Everything else (RANGE with an offset, values of the first row, DISTINCT, medians, frames
that end with the partition) may look at any row of the partition, and has no halo."""

from __future__ import annotations

from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.expr.nodes import Expr, Literal, SortKey
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.access import LastValue, ShiftedValue
from tsql.kernels.windows.base import Evaluator
from tsql.kernels.windows.call import Bound, WindowCall
from tsql.kernels.windows.evaluators import evaluator, needs_codes, simplified
from tsql.kernels.windows.folds import BodyFold
from tsql.kernels.windows.ranking import RANKING
from tsql.kernels.windows.running import RunningFrame


@dataclass(frozen=True)
class Halo:
    """A number of rows before and after a row, and with `peers` all its peers after it."""

    before: int = 0
    behind: int = 0
    peers: bool = False

    def union(self, other: Halo) -> Halo:
        return Halo(max(self.before, other.before), max(self.behind, other.behind), self.peers or other.peers)


def halo_of(calls: tuple[tuple[str, WindowCall], ...], order: tuple[SortKey, ...]) -> Halo | None:
    """The rows that all calls together look at; None if one of them may look at any row."""
    whole = Halo()
    for name, call in calls:
        halo = _halo(name, call, order)
        if halo is None:
            return None
        whole = whole.union(halo)
    return whole


def _halo(name: str, call: WindowCall, order: tuple[SortKey, ...]) -> Halo | None:
    if needs_codes(call) or call.ignore_nulls:
        return None
    call = simplified(call)
    if call.name in RANKING:
        return Halo()
    how = evaluator(name, call, order)
    if isinstance(how, ShiftedValue):
        distance = _constant(call.args[1]) if len(call.args) > 1 else 1
        if distance is None:
            return None
        ahead = distance if how.forward else -distance
        return Halo(max(0, -ahead), max(0, ahead))
    return _frame_halo(call, how)


def _frame_halo(call: WindowCall, how: Evaluator) -> Halo | None:
    frame = call.frame
    first, last = _distance(frame.start, frame.mode), _distance(frame.end, frame.mode)
    if frame.start.kind != "unbounded":
        return None if first is None or last is None else Halo(max(0, -first), max(0, last))
    if not _carries(call, how) or frame.exclude:
        return None
    if frame.end.kind == "current":
        return Halo(peers=frame.mode != "rows")
    return None if last is None else Halo(max(0, -last), max(0, last))


def _carries(call: WindowCall, how: Evaluator) -> bool:
    """Whether a frame that begins with the partition no longer needs its earlier rows."""
    if isinstance(how, LastValue):
        return True
    if not isinstance(how, RunningFrame) or type(how.fold) is not BodyFold:
        return False
    body = plain_body(call.aggregate())
    return not body.release() and "ptr" not in body.fields


def _distance(bound: Bound, mode: str) -> int | None:
    """The greatest distance in rows from a row to an end of its frame of ROWS (negative: before it); None if
    unknown."""
    if mode != "rows" or bound.kind == "unbounded":
        return None
    if bound.kind == "current":
        return 0
    distance = _constant(bound.offset)
    if distance is None or distance < 0:
        return None
    return -distance if bound.kind == "preceding" else distance


def _constant(expr: Expr | None) -> int | None:
    return expr.value if isinstance(expr, Literal) and isinstance(expr.value, int) else None
