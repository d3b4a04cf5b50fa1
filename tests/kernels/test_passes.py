"""What is left of a function before it is printed: nothing is computed twice in a row, and nothing that nobody asks
for."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kernels.programs import compiled, interpreted
from tsql.kernels.codegen.kir import Module, parse
from tsql.kernels.codegen.lang import Kernel
from tsql.kernels.codegen.llvm import FULL, QUICK


def kernel() -> Kernel:
    return Kernel(Module(), "main", ("ptr", "ptr", "i64"), None)


def finished(k: Kernel) -> Counter[str]:
    """The ops of the function, by name; it means the same to the interpreter and to LLVM, and its text reads back."""
    k.ret()
    function = k.finish()
    assert parse(k.module.text()).functions["main"] == function
    results = [interpreted(k.module), compiled(k.module, QUICK), compiled(k.module, FULL)]
    assert results[0] == results[1] == results[2]
    return Counter(op.name for op in function.walk())


def test_a_value_is_computed_once() -> None:
    k = kernel()
    count = k.params[2]
    a, b = count * 3 + 1, count * 3 + 1
    assert a.id == b.id
    with k.when(a > 5):
        assert (count * 3).id == (count * 3).id
        k.store(k.params[0], count * 3)
    found = finished(k)
    assert found["mul"] == 1 and found["add"] == 1


def test_a_block_that_is_closed_has_computed_nothing_for_others() -> None:
    k = kernel()
    count = k.params[2]
    with k.when(count > 5):
        inner = count * 7
        k.store(k.params[0], inner)
    with k.otherwise():
        k.store(k.params[0], count * 7 + 1)
    outer = count * 7
    assert outer.id != inner.id
    with k.when(count > 2):
        assert (count * 7).id == outer.id
    k.store(k.params[0], outer + 2)
    assert finished(k)["mul"] == 3


def test_what_can_change_is_read_again() -> None:
    k = kernel()
    slot = k.var(k.params[2])
    first = slot.value + 1
    slot.set(first)
    second = slot.value + 1
    assert first.id != second.id
    k.store(k.params[0], second)
    before = k.load("i64", k.params[0])
    k.store(k.params[0], before + before)
    k.store(k.params[0], k.load("i64", k.params[0]) + 1)
    found = finished(k)
    assert found["get"] == 2 and found["load"] == 2


def test_what_nobody_asks_for_goes() -> None:
    k = kernel()
    count = k.params[2]
    k.load("i64", k.offset(k.params[0], 16))
    unused = count * 5
    with k.when(count > 0):
        unused = unused + 1
        k.store(k.params[0], count)
    k.atomic_add(k.params[0], 1)
    found = finished(k)
    assert (
        "mul" not in found
        and "load" not in found
        and found["atomic_add"] == 1
        and found["store"] == 1
        and found["add"] == 0
    )


@pytest.mark.parametrize("type", ["i8", "i64"])
def test_constants_wrap(type: str) -> None:
    k = kernel()
    high = k.const(type, 2 ** ({"i8": 8, "i64": 64}[type] - 1) - 1)
    k.store(k.params[0], (high + k.const(type, 1)).to("i64") + high.to("i64") * k.i64(3))
    k.store(k.params[0], k.load("i64", k.params[0]) + k.params[2])
    finished(k)


def test_ops_that_change_nothing() -> None:
    k = kernel()
    count = k.params[2]
    for same in (
        count + 0,
        count - 0,
        count * 1,
        count | 0,
        count ^ 0,
        count << 0,
        count >> 0,
        count.ushr(0),
        k.i64(0) + count,
        k.i64(1) * count,
    ):
        assert same.id == count.id
    assert (k.i64(0) - count).id != count.id
    assert ((count > 3) & True).id == (count > 3).id
    k.store(k.params[0], count)
    finished(k)
