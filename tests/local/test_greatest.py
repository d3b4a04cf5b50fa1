"""The search for the next number that is large enough, against looking at all of them, compiled and interpreted."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest

from tsql.backends.local.sort.greatest import Greatest
from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.runtime.overlaps import next_reaching

SEED = 20_261_203


@cache
def module() -> Module:
    """`main(record, query, after)`: the query is start, end and value; its first word becomes the place."""
    found = Module()
    k = Kernel(found, "main", ("ptr", "ptr", "i64"), None)
    record, query, after = k.params
    words = [k.load("i64", query, word) for word in range(3)]
    k.store(query, next_reaching(k, record, *words, after))
    k.ret()
    k.finish()
    return found


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 65, 600, 5000])
@pytest.mark.parametrize("spread", [2, 1000])
def test_next_reaching(rows: int, spread: int) -> None:
    random = Random(SEED + rows)
    print(f"seed {SEED + rows}")
    numbers = np.array([random.randrange(spread) for _ in range(rows)], np.int64)
    if rows > 64:
        numbers[10:-5] = 0
    levels = Greatest.of(numbers)
    interpreter = Interpreter(module())
    run = compiler().routine(module)
    for turn in range(60):
        start = random.randint(0, rows)
        end, value, after = random.randint(start, rows), random.randrange(-1, spread + 1), random.randint(0, 1)
        large = numbers > value if after else numbers >= value
        expected = next((place for place in range(start, end) if large[place]), end)
        query = np.array([start, end, value], np.int64)
        for call in (run, lambda *args: interpreter("main", *args)) if turn < 10 else (run,):
            asked = query.copy()
            call(levels.address, asked.ctypes.data, after)
            assert asked[0] == expected, (start, end, value, after)
