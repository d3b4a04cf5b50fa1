"""What is done to a function between its emission and its text: `prune` leaves out what nobody asks for.

Operators load the pointers of all columns of a morsel, and compute what a row may be asked for; every op that stays is
printed, rendered, parsed by LLVM and looked at by its passes. A value is used after it is made, in its own block or in
one inside of it, so one walk from the end finds all that is unused. Numbers of values stay as they are."""

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
"""Ops whose value follows from their arguments."""
WITHOUT_EFFECT = PURE | {"const", "get", "load"}
"""Ops that leave nothing but their value."""


def prune(function: KirFunction) -> None:
    """Take ops without effect out whose value is not used."""
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
