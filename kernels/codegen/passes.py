"""Passes over a function between emission and text. `prune` drops unused ops.

Operators load the pointers of all columns of a morsel, and compute everything that a row may be asked for. Every
remaining op is printed, rendered, parsed by LLVM and visited by its passes. A value is used after it is made, in its
own block or a nested one, so one backward walk finds all unused ops. Value numbers do not change."""

from __future__ import annotations

from tsql.kernels.codegen.kir import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    CONVERSIONS,
    OVERFLOWS,
    UNARY_FLOAT,
    UNARY_INT,
    KirFunction,
    Op,
)

PURE = frozenset(
    (
        "select",
        "offset",
        "symbol",
        *ARITHMETIC,
        *BITWISE,
        *COMPARISONS,
        *OVERFLOWS,
        *CONVERSIONS,
        *UNARY_FLOAT,
        *UNARY_INT,
    )
)
"""Ops whose value depends only on their arguments."""
WITHOUT_EFFECT = PURE | {"const", "get", "load"}
"""Ops without side effects."""


def prune(function: KirFunction) -> None:
    """Remove ops without side effects whose value is unused."""
    types = function.types
    _prune(function.body, types, set())
    while len(types) > len(function.params) and not types[-1]:
        types.pop()


def _prune(block: list[Op], types: list[str], used: set[int]) -> None:
    kept = []
    for op in reversed(block):
        if op.dst is not None and op.dst not in used and op.name in WITHOUT_EFFECT:
            types[op.dst] = ""
            continue
        used.update(op.args)
        for nested in reversed(op.blocks):
            _prune(nested, types, used)
        kept.append(op)
    kept.reverse()
    block[:] = kept
