"""The pure window functions: their arguments and results. Every aggregate is a window function too."""

from __future__ import annotations

from tsql.kernels.expr.types import BIGINT, DOUBLE, Type
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class WindowSignature:
    """takes: (least, most) arguments. returns: a type, or None for that of the first argument.

    integers: which arguments are whole numbers. like_first: which are cast to the type of the first.
    over_time: the window is in the order of a time, and what is not a whole number among the arguments is a time.
    framed: the frame matters. nulls: IGNORE NULLS is allowed. ordered: ORDER BY inside the call is allowed.
    """

    name: str
    takes: tuple[int, int]
    returns: Type | None
    integers: tuple[int, ...] = ()
    like_first: tuple[int, ...] = ()
    framed: bool = False
    nulls: bool = False
    ordered: bool = False
    over_time: bool = False


WINDOW_FUNCTIONS: dict[str, WindowSignature] = {
    f.name: f
    for f in (
        WindowSignature("row_number", (0, 0), BIGINT),
        WindowSignature("rank", (0, 0), BIGINT),
        WindowSignature("dense_rank", (0, 0), BIGINT),
        WindowSignature("percent_rank", (0, 0), DOUBLE),
        WindowSignature("cume_dist", (0, 0), DOUBLE),
        WindowSignature("ntile", (1, 1), BIGINT, integers=(0,)),
        WindowSignature("stitch_chain", (1, 1), BIGINT, over_time=True),
        WindowSignature("lag", (1, 3), None, integers=(1,), like_first=(2,), nulls=True),
        WindowSignature("lead", (1, 3), None, integers=(1,), like_first=(2,), nulls=True),
        WindowSignature("first_value", (1, 1), None, framed=True, nulls=True, ordered=True),
        WindowSignature("last_value", (1, 1), None, framed=True, nulls=True, ordered=True),
        WindowSignature("nth_value", (2, 2), None, integers=(1,), framed=True, nulls=True),
        WindowSignature("session_start", (3, 3), None, integers=(1, 2), over_time=True),
        WindowSignature("session_end", (3, 3), None, integers=(1, 2), over_time=True),
        WindowSignature("rows_start", (2, 2), None, integers=(1,), over_time=True),
        WindowSignature("rows_end", (2, 2), None, integers=(1,), over_time=True),
        WindowSignature("rows_number", (1, 1), BIGINT, integers=(0,), over_time=True),
    )
}
ALIASES = {"first": "first_value", "last": "last_value", "arbitrary": "first_value", "rank_dense": "dense_rank"}
"""Names under which the same function is called over a window."""
