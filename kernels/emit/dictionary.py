"""Predicates on dictionary codes: decided once per distinct string instead of once per row.

A comparison with a constant becomes a comparison of codes (dictionaries are sorted, so codes are in the order of their
strings). Any other predicate over one dictionary column becomes a lookup in a table with one byte per string, which the
host fills by evaluating the predicate over the dictionary.

Batches may bring dictionaries of their own (Parquet does). Then the kernel decides a predicate for all strings of a
dictionary when it meets the first row that refers to it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.batch import Dictionary
from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.rows import CodeDatum, ValueRow, dictionary_string
from tsql.kernels.expr.nodes import Call, Column, Expr, InList, Literal
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.functions.registry import SCALARS

MEMO_STRINGS = 1 << 13
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
PATTERNS = {"like", "ilike", "like_escape", "ilike_escape"}


def emit_on_codes(k: PipelineKernel, expr: Expr, row: Any) -> Datum | None:
    """The predicate on codes, or None if it is not over one dictionary column."""
    if expr.type != BOOLEAN or not isinstance(expr, Call | InList):
        return None
    comparison = _comparison(expr)
    if comparison is None and not _is_decidable(expr):
        return None
    name = expr.columns()[0]
    d = row.column(k, name)
    if not isinstance(d, CodeDatum):
        return None
    if d.column.dictionary is None:
        return _on_batch_codes(k, expr, name, d)
    dictionary = d.column.dictionary
    if comparison is not None:
        op, literal = comparison
        bound = k.slot(Slot("code_bound", None, (dictionary, op, literal)), ("i64",))[0]
        ways = {
            "=": lambda: _is_code(d, bound),
            "<>": lambda: ~_is_code(d, bound),
            "<": lambda: d.code < bound,
            "<=": lambda: d.code < bound,
        }
        value = ways.get(op, lambda: d.code >= bound)()
        return Datum(BOOLEAN, (value,), d.valid)
    table = k.slot(Slot("dictionary_table", None, (dictionary, name, expr)), ("ptr",))[0]
    return Datum(BOOLEAN, (k.load("i8", table, d.code) == 1,), d.valid)


def _is_code(d: CodeDatum, wanted: Val) -> Val:
    """Whether a code is the wanted one (-1: of no string). Codes are compared in their stored width, so that a vector
    instruction handles as many as possible."""
    return d.code == wanted if d.stored is None else (d.stored == wanted.to(d.stored.type)) & (wanted >= 0)


def _on_batch_codes(k: PipelineKernel, expr: Expr, name: str, d: CodeDatum) -> Datum:
    """A predicate on codes of the batch's dictionary. The memo holds the address of its dictionary and one byte per
    string. It starts empty in every call, because the dictionaries of the previous call are gone. A large dictionary
    has no memo."""
    memo = k.buffer(8 + MEMO_STRINGS)
    k.at_entry(lambda: k.store(memo, k.null))
    known, strings = k.offset(memo, 8), k.load("i64", d.record, 2)
    usable = strings <= MEMO_STRINGS

    def decide(text: Datum) -> Val:
        found = emit(k, expr, ValueRow({name: Datum(text.type, text.parts)}))
        return found.value if found.valid is None else found.value & found.valid

    with k.when(usable & (k.load("ptr", memo) != d.record)):
        k.store(memo, d.record)
        with k.range(strings) as code:
            k.store(known, decide(dictionary_string(k, d.column, d.record, code, None)).uto("i8"), code)
    hit = k.var(k.false)
    with k.when(usable):
        hit.set(k.load("i8", known, d.code) != 0)
    with k.otherwise():
        hit.set(decide(d))
    return Datum(BOOLEAN, (hit.value,), d.valid)


def _comparison(expr: Expr) -> tuple[str, Literal] | None:
    """(operator, constant) of a comparison of a string column with a constant."""
    found: tuple[str, Literal]
    match expr:
        case Call("=" | "<>" | "<" | "<=" | ">" | ">=" as op, (Column() as column, Literal() as literal)):
            found = op, literal
        case Call("=" | "<>" | "<" | "<=" | ">" | ">=" as mirrored, (Literal() as literal, Column() as column)):
            found = MIRROR[mirrored], literal
        case _:
            return None
    return found if column.type.is_string and literal.value is not None else None


def _is_decidable(expr: Expr) -> bool:
    """Whether the predicate has one string column, constants, and functions that return NULL only for NULL."""
    if len(expr.columns()) != 1:
        return False
    for node in expr.walk():
        match node:
            case Column():
                if not node.type.is_string:
                    return False
            case Literal():
                if node.value is None:
                    return False
            case InList():
                pass
            case Call():
                f = SCALARS.find(node.name, tuple(a.type for a in node.args))
                if f.emit is None or f.can_fail or (f.nulls != "strict" and node.name not in PATTERNS):
                    return False
            case _:
                return False
    return True


def code_bound(dictionary: Dictionary, op: str, value: str | bytes) -> int:
    """The code to compare with: for = and <> that of the string (-1 if there is none), else the position that splits
    the order."""
    keys = dictionary.sort_keys
    wanted = value.encode() if isinstance(value, str) else value
    left = bisect_left(keys, wanted)
    if op in ("=", "<>"):
        return left if left < len(keys) and keys[left] == wanted else -1
    return left if op in ("<", ">=") else bisect_right(keys, wanted)
