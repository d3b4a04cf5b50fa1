"""Routines in code that is made quickly: compiled once in a process, lent to other kernels, and found again on disk
with the kernel that has them."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.codegen.llvm import FULL, QUICK, Compiled, Compiler
from tsql.kernels.codegen.object_cache import flush, read_entry, write_later
from tsql.kernels.codegen.objects import DamagedObject, ObjectCode
from tsql.kernels.codegen.render import render, shared_names


@routine("twice", ("i64",), "i64")
def twice(k: Kernel, x: Val) -> None:
    k.ret(x + x)


@routine("four_times", ("i64",), "i64")
def four_times(k: Kernel, x: Val) -> None:
    k.ret(twice(k, twice(k, x)))


@routine("negated", ("i64",), "i64")
def negated(k: Kernel, x: Val) -> None:
    k.ret(-x)


def module_of(number: int, *calls: Callable[..., Any]) -> Module:
    """`main` stores what the calls make of its count, one after the other, plus a number."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    value = k.params[2]
    for call in calls:
        value = call(k, value)
    k.store(k.params[0], value + number)
    k.ret()
    k.finish()
    return module


def answer(function: Callable[..., Any], count: int = 7) -> int:
    found = ctypes.c_int64()
    function(ctypes.addressof(found), 0, count)
    return found.value


def right(compiler: Compiler, module: Module, opt: int = QUICK) -> Compiled:
    """The code of a module, which does what its definition says."""
    made = compiler.compile(module, opt)
    assert answer(made.function) == answer(lambda *arguments: Interpreter(module)("main", *arguments))
    flush()
    return made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Compiler().pool()
    flush()
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    return tmp_path


def kept(compiler: Compiler, module: Module) -> ObjectCode:
    """The entry of a module on disk."""
    return ObjectCode.decode(read_entry("code", compiler._key(module.fingerprint(), QUICK), compiler._made_by))


def test_a_routine_is_compiled_once(cache: Path) -> None:
    compiler, first, second = Compiler(), module_of(1, twice), module_of(2, twice, four_times)
    right(compiler, first)
    right(compiler, second)
    (lent,) = shared_names(first).values()
    assert kept(compiler, first).exports == ("main", lent)
    assert kept(compiler, second).imports == {lent: compiler._key(first.fingerprint(), QUICK)}
    assert [name.rsplit("_", 1)[0] for name in kept(compiler, second).exports] == ["main", "four_times"]


def test_full_code_has_its_routines_within(cache: Path) -> None:
    compiler = Compiler()
    right(compiler, module_of(1, twice), FULL)
    right(compiler, module_of(2, twice), FULL)
    assert compiler._shared == {}


def test_code_from_disk_brings_what_it_needs(cache: Path) -> None:
    modules = [module_of(1, twice), module_of(2, four_times), module_of(3, four_times, twice)]
    before = Compiler()
    for module in modules:
        assert right(before, module).origin == "llvm"
    after = Compiler()
    for module in reversed(modules):
        assert right(after, module).origin == "disk"
    assert len(after._memory) == 3


@pytest.mark.parametrize("damage", ["missing", "garbage", "without the routine"])
def test_code_whose_needs_are_not_met_is_made_again(cache: Path, damage: str) -> None:
    first, second = module_of(1, twice), module_of(2, twice)
    before = Compiler()
    for module in (first, second):
        right(before, module)
    key = before._key(first.fingerprint(), QUICK)
    if damage == "missing":
        (cache / key).unlink()
    elif damage == "garbage":
        write_later("code", key, lambda: b"\xff\xff\xff\xff garbage", before._made_by)
    else:
        other = kept(before, module_of(1, twice))
        write_later("code", key, ObjectCode(other.code, ("main",)).encode, before._made_by)
    flush()
    after = Compiler()
    assert right(after, second).origin == "llvm"
    assert right(Compiler(), second).origin == "disk"


def test_entries_that_need_each_other_are_made_again(cache: Path) -> None:
    """Two processes that have met two kernels in different orders, each of which has written one of them last."""
    one, other = module_of(1, twice, negated), module_of(2, negated, twice)
    key, names, entries = Compiler()._key, shared_names(one), {}
    for module, owner, borrowed in ((one, other, negated), (other, one, twice)):
        compiler = Compiler()
        right(compiler, module_of(10, borrowed))
        right(compiler, module)
        found = kept(compiler, module)
        assert [*found.imports] == [names[borrowed.__name__]] and len(found.exports) == 2
        entries[key(module.fingerprint(), QUICK)] = ObjectCode(
            found.code, found.exports, dict.fromkeys(found.imports, key(owner.fingerprint(), QUICK))
        )
    for name, entry in entries.items():
        write_later("code", name, entry.encode, compiler._made_by)
    flush()
    after = Compiler()
    assert right(after, one).origin == "llvm"
    right(after, other)
    assert [right(Compiler(), module).origin for module in (one, other)] == ["disk", "disk"]


def test_names_say_what_a_routine_does(cache: Path) -> None:
    """Two routines of one name, and two that call them, are four."""

    def adding(number: int) -> Module:
        @routine("step", ("i64",), "i64")
        def step(k: Kernel, x: Val) -> None:
            k.ret(x + number)

        @routine("outer", ("i64",), "i64")
        def outer(k: Kernel, x: Val) -> None:
            k.ret(step(k, x) * 3)

        return module_of(0, outer)

    one, two = shared_names(adding(1)), shared_names(adding(2))
    assert one.keys() == two.keys() == {"step", "outer"} and not set(one.values()) & set(two.values())
    assert shared_names(adding(1)) == one
    compiler = Compiler()
    for number in (1, 2, 1):
        assert answer(right(compiler, adding(number)).function) == (7 + number) * 3


def test_a_kernel_keeps_the_routines_that_it_calls(cache: Path) -> None:
    compiler = Compiler()
    right(compiler, module_of(1, twice))
    function = right(compiler, module_of(2, twice)).function
    compiler._memory.clear()
    compiler._shared.clear()
    gc.collect()
    for number in range(10, 40):
        right(compiler, module_of(number))
    assert answer(function) == 16


def test_what_is_elsewhere_is_only_declared() -> None:
    module = module_of(1, twice, four_times)
    names = shared_names(module)
    text = render(module, names, {names["twice"]})
    assert (
        f"declare i64 @{names['twice']}(i64) nounwind" in text and f"define i64 @{names['four_times']}(i64 %v0)" in text
    )
    assert "define internal i64 @twice(" in render(module) and names["twice"] not in render(module)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x00\x00\x00",
        b"\x02\x00\x00\x00[]",
        b"\x04\x00\x00\x00null",
        b"\xff\xff\xff\xff{",
        b"\x08\x00\x00\x00[[], {}]",
        b"\x09\x00\x00\x00[[1], {}]",
    ],
)
def test_what_is_no_object_code_says_so(data: bytes) -> None:
    with pytest.raises(DamagedObject):
        ObjectCode.decode(data)
