"""GLOB patterns in the kernel language: `*`, `?`, `[a-z]`, `[!a]` and `\\` as the escape character. Bytes are compared,
as in DuckDB."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine


@routine("glob_bracket", ("ptr", "i64", "i64", "i8"), "i64")
def glob_bracket(k: Kernel, pattern: Val, m: Val, start: Val, byte: Val) -> None:
    """Where the pattern continues after the brackets that open just before `start`, or -1 if they do not allow `byte`.
    Brackets that never close allow nothing; a `]` that comes first stands for itself."""
    inverted = k.var(k.false)
    place = k.var(start)
    with k.when(start < m):
        inverted.set(k.load("i8", pattern, start) == ord("!"))
    place.set(start + inverted.value.to("i64"))
    first = place.value
    found, closed = k.var(k.false), k.var(k.false)
    with k.forever() as loop:
        loop.stop_if(place.value >= m)
        low = k.load("i8", pattern, place.value)
        closed.set((low == ord("]")) & (place.value > first))
        loop.stop_if(closed.value | (place.value + 1 >= m))
        high = k.var(low)
        with k.when(place.value + 2 < m):
            last = k.load("i8", pattern, place.value + 2)
            with k.when((k.load("i8", pattern, place.value + 1) == ord("-")) & (last != ord("]"))):
                high.set(last)
                place.set(place.value + 2)
        found.set(found.value | ((byte >= low) & (byte <= high.value)))
        place.set(place.value + 1)
    k.ret(k.select(closed.value & (found.value ^ inverted.value), place.value + 1, k.i64(-1)))


@routine("glob_match", ("ptr", "i64", "ptr", "i64"), "i1")
def glob_match(k: Kernel, p: Val, n: Val, pattern: Val, m: Val) -> None:
    """Whether the whole string matches. On a mismatch the text after the last `*` moves on by one byte, as in
    `like_match`."""
    at, place = k.var(k.i64(0)), k.var(k.i64(0))
    after_star, retry = k.var(k.i64(-1)), k.var(k.i64(0))
    with k.forever() as loop:
        following = k.var(k.i64(-1))
        starred = k.var(k.false)
        with k.when(place.value < m):
            wanted = k.load("i8", pattern, place.value)
            with k.when(wanted == ord("*")):
                place.set(place.value + 1)
                after_star.set(place.value)
                retry.set(at.value)
                starred.set(k.true)
            with k.otherwise():
                with k.when(at.value < n):
                    following.set(_step(k, pattern, m, place.value, wanted, k.load("i8", p, at.value)))
        with k.when((place.value >= m) & (at.value >= n)):
            k.ret(k.true)
        with k.when(~starred.value):
            with k.when(following.value >= 0):
                at.set(at.value + 1)
                place.set(following.value)
            with k.otherwise():
                with k.when((after_star.value < 0) | (retry.value >= n)):
                    k.ret(k.false)
                retry.set(retry.value + 1)
                at.set(retry.value)
                place.set(after_star.value)
        loop.stop_if(k.false)
    k.ret(k.false)


def _step(k: Kernel, pattern: Val, m: Val, place: Val, wanted: Val, byte: Val) -> Val:
    """Where the pattern continues if `byte` matches the element at `place`, else -1."""
    result = k.var(k.select((wanted == byte) | (wanted == ord("?")), place + 1, k.i64(-1)))
    with k.when(wanted == ord("[")):
        result.set(glob_bracket(k, pattern, m, place + 1, byte))
    with k.when(wanted == ord("\\")):
        result.set(-1)
        with k.when(place + 1 < m):
            result.set(k.select(k.load("i8", pattern, place + 1) == byte, place + 2, k.i64(-1)))
    return result.value
