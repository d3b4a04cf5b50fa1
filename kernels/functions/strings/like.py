"""LIKE and ILIKE. A constant pattern is taken apart when the kernel is emitted: `abc%` is a comparison, `%abc%` a
search; patterns with `_` and patterns that are not constant go through one general matcher."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row, all_valid
from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.case import in_case, simple_lower
from tsql.kernels.runtime.text.search import LIKE_BAD_PATTERN, like_match, str_find

NO_ESCAPE = -1
MOST_PIECES = 16
"""A constant pattern with more `%` goes through the general matcher: its code would be nested as deep as the pattern
has pieces."""


def like_pieces(pattern: str, escape: str = "") -> list[bytes] | None:
    """The texts between the `%` of a pattern, or None if it has a `_` or ends with the escape character.

    `a%b%` is [a, b, ""]: the first must start the string, the last must end it, those between follow in order.
    """
    pieces, piece, characters = [], "", iter(pattern)
    for c in characters:
        if c == escape:
            c = next(characters, "")
            if not c:
                return None
            piece += c
        elif c == "_":
            return None
        elif c == "%":
            pieces.append(piece.encode())
            piece = ""
        else:
            piece += c
    return [*pieces, piece.encode()]


def emit_like_literal(k: PipelineKernel, value: Datum, pattern: str, escape: str = "") -> Val:
    """i1: value LIKE a constant pattern. The texts of the pattern are data of the kernel and only their lengths are
    code, so that the same query with another text of the same length is the same kernel."""
    pieces = like_pieces(pattern, escape)
    if pieces is None or len(pieces) > MOST_PIECES:
        data = pattern.encode()
        whole = Datum(VARCHAR, (k.static(data), k.i64(len(data))))
        return _matched(k, value, whole, k.i64(ord(escape) if escape else NO_ESCAPE))
    p, n = value.parts

    def equal(at: Val, text: bytes) -> Val:
        return k.call("memcmp", at, k.static(text), len(text)) == 0 if text else k.true

    result = k.var(k.false)
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        with k.when(n == len(first)):
            result.set(equal(p, first))
        return result.value
    shortest = sum(len(piece) for piece in pieces)
    with ExitStack() as nested:
        nested.enter_context(k.when(n >= shortest))
        if first or last:
            nested.enter_context(k.when(equal(p, first) & equal(p + (n - len(last)), last)))
        at, end = k.i64(len(first)), n - len(last)
        for piece in pieces[1:-1]:
            if piece:
                found = str_find(k, p + at, end - at, k.static(piece), k.i64(len(piece)))
                nested.enter_context(k.when(found >= 0))
                at = at + found + len(piece)
        result.set(k.true)
    return result.value


def _matched(k: PipelineKernel, value: Datum, pattern: Datum, escape: Val) -> Val:
    outcome = like_match(k, *value.parts, *pattern.parts, escape)
    k.fail(outcome == LIKE_BAD_PATTERN, "Like pattern must not end with escape character!")
    return outcome == 1


def _match_any(k: PipelineKernel, fold: bool, value: Datum, pattern: Datum, escape: Datum | None = None) -> Val:
    """A pattern that is known only at run time."""
    if fold:
        value, pattern = (Datum(VARCHAR, in_case(k, "lower", d)) for d in (value, pattern))
    if escape is None:
        return _matched(k, value, pattern, k.i64(NO_ESCAPE))
    if fold:
        escape = Datum(VARCHAR, in_case(k, "lower", escape))
    k.fail(escape.len > 1, "Invalid escape string. Escape string must be empty or one character.")
    byte = k.var(k.i64(NO_ESCAPE))
    with k.when(escape.len == 1):
        byte.set(k.load("i8", escape.ptr).uto("i64"))
    return _matched(k, value, pattern, byte.value)


def _constants(args: list[Expr]) -> list[str] | None:
    """The texts of a constant pattern and of an escape of at most one byte; None if they are not that."""
    texts = [a.value for a in args if isinstance(a, Literal) and a.value is not None]
    return texts if len(texts) == len(args) and all(len(text.encode()) <= 1 for text in texts[1:]) else None


def _emit(k: PipelineKernel, call: Call, row: Row, fold: bool) -> Datum:
    from tsql.kernels.emit.expressions import emit

    value, *rest = call.args
    constants = _constants(rest)
    if constants is None:
        args = tuple(emit(k, a, row) for a in call.args)
        return _where_valid(k, call, args, lambda *data: _match_any(k, fold, *data))
    texts = [simple_lower(text) if fold else text for text in constants]

    def body(d: Datum) -> Val:
        return emit_like_literal(k, Datum(VARCHAR, in_case(k, "lower", d)) if fold else d, *texts)

    return _where_valid(k, call, (emit(k, value, row),), body)


def _where_valid(k: PipelineKernel, call: Call, args: tuple[Datum, ...], body: Callable[..., Val]) -> Datum:
    valid = all_valid(args)
    if valid is None:
        with k.guarded(k.frame.guard, call.position):
            return Datum(BOOLEAN, (body(*args),))
    result = k.var(k.false)
    with k.when(valid), k.guarded(None, call.position):
        result.set(body(*(a.with_valid(None) for a in args)))
    return Datum(BOOLEAN, (result.value,), valid)


def _register(
    name: str,
    fold: bool,
    examples: tuple[tuple[str, bool | None], ...],
    escape_examples: tuple[tuple[str, bool | None], ...],
) -> None:
    @function(name, args=(VARCHAR, VARCHAR), returns=BOOLEAN, nulls="expression", lazy=True, examples=examples)
    def like(k: PipelineKernel, call: Call, row: Row) -> Datum:
        """Whether the whole string matches: % stands for any text, _ for one character."""
        return _emit(k, call, row, fold)

    @function(
        name,
        f"{name}_escape",
        args=(VARCHAR, VARCHAR, VARCHAR),
        returns=BOOLEAN,
        nulls="expression",
        lazy=True,
        can_fail=True,
        examples=escape_examples,
    )
    def like_escape(k: PipelineKernel, call: Call, row: Row) -> Datum:
        """LIKE .. ESCAPE: the character after the escape character stands for itself."""
        return _emit(k, call, row, fold)


_register(
    "like", False,
    (("'hello' LIKE 'h%o'", True), ("'é' LIKE '_'", True), ("'abc' LIKE 'b'", False), ("'a' LIKE NULL", None)),
    (("'a%c' LIKE 'a!%c' ESCAPE '!'", True), ("'abc' LIKE 'a!%c' ESCAPE '!'", False)),
)  # fmt: skip
_register("ilike", True, (("'HELLO É' ILIKE 'h%é'", True),), (("'A%' ILIKE 'aX%' ESCAPE 'x'", True),))
