"""KIR itself: each op has a rule, a meaning and a rendering; interpreter and machine code agree; text round-trips; bad
programs are refused."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.fuzz.amount import examples
from tests.kernels import programs
from tests.kernels.programs import INPUT_SLOTS, SIGNATURES, SLOT, TYPES, VALUE_OPS, apply, compiled, interpreted
from tsql.kernels.codegen import interp, kir, memory
from tsql.kernels.codegen.interp import Interpreter, UndefinedBehaviour
from tsql.kernels.codegen.kir import BYTES, FLOATS, INTEGERS, KirFunction, Module, Op, parse
from tsql.kernels.codegen.lang import Kernel
from tsql.kernels.codegen.llvm import FULL, QUICK
from tsql.kernels.codegen.spec import RULES, IllegalKernel, verify
from tsql.kernels.runtime import pool

CHECKED_BY_VERIFY = {"call", "ret"}
"""Ops whose rule needs the function or the module, and stands in `verify`."""

EXAMPLES = examples(120)


@pytest.fixture(scope="module", autouse=True)
def no_disk_cache() -> Iterator[None]:
    """Random programs are never seen again: they would only fill the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSQL_CACHE", "")
        yield


def agree(module: Module, data: bytes = b"") -> bytes:
    """The program is legal, its text round-trips, and all engines leave the same memory."""
    verify(module)
    text = module.text()
    again = parse(text)
    assert again.text() == text and again.main == module.main
    assert {n: f.types for n, f in again.functions.items()} == {n: f.types for n, f in module.functions.items()}
    wanted = interpreted(module, data)
    for level in (QUICK, FULL):
        assert compiled(module, level, data) == wanted, f"level {level}\n{text}"
    return wanted


def small_inputs(type: str) -> list[bytes]:
    """Encodings of values for which every op is defined, one per argument."""
    if type in FLOATS:
        return [struct.pack("<f" if type == "f32" else "<d", v) for v in (6.5, -2.5, 3.0)]
    return [v.to_bytes(BYTES[type], "little", signed=True) for v in ((1, 0, 1) if type == "i1" else (-90, 3, 5))]


def test_every_op_has_a_rule() -> None:
    assert set(kir.OPS) == set(RULES) | CHECKED_BY_VERIFY
    assert len(set(kir.OPS)) == len(kir.OPS)


@pytest.mark.parametrize("name", VALUE_OPS)
def test_every_op_has_a_meaning_and_a_rendering(name: str) -> None:
    """With each signature that its rule allows, on values that the compiler cannot know."""
    assert SIGNATURES[name], f"no types are legal for {name}"
    for arguments, result in SIGNATURES[name]:
        module = Module()
        k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
        data = b""
        values = []
        for position, type in enumerate(arguments):
            if type == "ptr":
                values.append(k.params[0] + 8 * position)
            else:
                values.append(k.load(type, k.params[1] + SLOT * position))
            data += (b"" if type == "ptr" else small_inputs(type)[position]).ljust(SLOT, b"\0")
        made = apply(k, name, result, values)
        if made.type == "ptr" or name == "address":
            made = made.bits_as("i64") - k.params[0].bits_as("i64")
        k.store(k.params[0], programs.without_nan(k, made))
        k.ret()
        k.finish()
        agree(module, data)


@pytest.mark.parametrize("type", [t for t in TYPES if t != "i1"])
def test_memory_ops(type: str) -> None:
    """load, store, var, get, set and const of each type that memory can hold."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    slot = k.var(k.const(type, 0))
    k.store(k.params[0], slot.value)
    slot.set(k.params[0] if type == "ptr" else k.load(type, k.params[1]))
    value = slot.value
    k.store(k.params[0] + SLOT, value == k.params[0] if type == "ptr" else value)
    k.ret()
    k.finish()
    scratch = agree(module, small_inputs("i64" if type == "ptr" else type)[0])
    assert scratch[:SLOT] == bytes(SLOT)
    assert scratch[SLOT : 2 * SLOT] == (b"\1" if type == "ptr" else small_inputs(type)[0]).ljust(SLOT, b"\0")


def test_symbols() -> None:
    """A symbol is the address of a record of the host."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    k.store(k.params[0], k.load("i64", k.symbol(pool.STATE), pool.REGION))
    k.ret()
    k.finish()
    assert (
        int.from_bytes(agree(module)[:8], "little") == ctypes.c_int64.from_address(memory.STATE + 8 * pool.REGION).value
    )


@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(programs.programs(), st.binary(max_size=INPUT_SLOTS * SLOT))
def test_random_programs_agree(text: str, data: bytes) -> None:
    module = parse(text)
    try:
        interpreted(module, data)
    except UndefinedBehaviour:
        hypothesis.reject()
    agree(module, data)


@pytest.mark.parametrize(
    "value", [2**24 + 1, 2**54 + 2**30 + 1, -(2**54 + 2**30 + 1), 2**63 - 1, -(2**63), 2**25 + 2, 2**25 + 6]
)
@pytest.mark.parametrize("name", ["itof", "utof"])
def test_integers_are_rounded_once(name: str, value: int) -> None:
    """2**54 + 2**30 + 1 lies just above the middle of two FLOATs; by way of DOUBLE it would land on the middle, and
    then below."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    k.store(k.params[0], k.emit(name, "f32", k.load("i64", k.params[1])))
    k.ret()
    k.finish()
    agree(module, value.to_bytes(8, "little", signed=True))


@pytest.mark.parametrize(
    "value", [2**128 - 1, 2**127 + 2**103 + 1, 2**100 + 2**76 + 1, 2**100 + 2**76, 3 * 2**100 + 2**77]
)
def test_wide_integers_are_rounded_once(value: int) -> None:
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    wide = k.load("i128", k.params[1])
    k.store(k.params[0], k.emit("utof", "f32", wide))
    k.store(k.params[0] + SLOT, k.emit("utof", "f64", wide))
    k.store(k.params[0] + 2 * SLOT, k.emit("itof", "f32", wide))
    k.ret()
    k.finish()
    agree(module, value.to_bytes(16, "little"))


UNDEFINED = {
    "division by zero": "%3: i32 = const 1\n%4: i32 = const 0\n%5: i32 = div %3 %4",
    "remainder by zero": "%3: i32 = const 1\n%4: i32 = const 0\n%5: i32 = rem %3 %4",
    "unsigned division by zero": "%3: i32 = const 1\n%4: i32 = const 0\n%5: i32 = udiv %3 %4",
    "division that overflows": "%3: i8 = const -128\n%4: i8 = const -1\n%5: i8 = div %3 %4",
    "shift by the width": "%3: i8 = const 1\n%4: i8 = const 8\n%5: i8 = shl %3 %4",
    "shift by less than nothing": "%3: i64 = const 1\n%4: i64 = const -1\n%5: i64 = ushr %3 %4",
    "float out of range": "%3: f64 = const 0x1.0p+31\n%4: i32 = ftoi %3",
    "infinity to integer": "%3: f64 = const inf\n%4: i32 = ftoi %3",
    "nan to integer": "%3: f64 = const nan\n%4: i64 = ftoi %3",
    "load at null": "%3: ptr = const 0\n%4: i64 = load %3",
    "store at null": "%3: ptr = const 0\n%4: i64 = const 0\nstore %3 %4",
}


@pytest.mark.parametrize("what", UNDEFINED)
def test_the_interpreter_raises_where_machine_code_is_undefined(what: str) -> None:
    module = program(UNDEFINED[what])
    verify(module)
    with pytest.raises(UndefinedBehaviour):
        Interpreter(module)("main", 0, 0, 0)


def program(body: str, returns: str = "void", rest: str = "") -> Module:
    return parse(f"func @main(%0: ptr, %1: ptr, %2: i64) -> {returns} {{\n{body}\n}}\n{rest}")


ROUTINE = "func @twice(%0: i64) -> i64 {\n%1: i64 = add %0 %0\nret %1\n}\n"

ILLEGAL = {
    "arithmetic on two types": "%3: i32 = const 1\n%4: i64 = add %2 %3",
    "arithmetic with another result": "%3: i32 = add %2 %2",
    "arithmetic on pointers": "%3: ptr = add %0 %1",
    "arithmetic on truth values": "%3: i1 = const 1\n%4: i1 = add %3 %3",
    "remainder of floats": "%3: f64 = const 0x1.0p+0\n%4: f64 = rem %3 %3",
    "bits of floats": "%3: f64 = const 0x1.0p+0\n%4: f64 = and %3 %3",
    "shift of truth values": "%3: i1 = const 1\n%4: i1 = shl %3 %3",
    "comparison with a number as result": "%3: i64 = lt %2 %2",
    "signed order of truth values": "%3: i1 = const 1\n%4: i1 = lt %3 %3",
    "signed order of pointers": "%3: i1 = lt %0 %1",
    "unsigned order of floats": "%3: f64 = const 0x1.0p+0\n%4: i1 = ult %3 %3",
    "select by a number": "%3: i64 = select %2 %2 %2",
    "select of two types": "%3: i1 = const 1\n%4: i64 = select %3 %2 %0",
    "widening to less": "%3: i32 = sext %2",
    "cutting to more": "%3: i128 = trunc %2",
    "signed truth value to float": "%3: i1 = const 1\n%4: f64 = itof %3",
    "float to truth value": "%3: f64 = const 0x1.0p+0\n%4: i1 = ftoi %3",
    "bitcast of unequal width": "%3: f32 = bitcast %2",
    "bytes of one byte swapped": "%3: i8 = const 1\n%4: i8 = bswap %3",
    "square root of an integer": "%3: i64 = sqrt %2",
    "constant out of range": "%3: i8 = const 128",
    "pointer constant": "%3: ptr = const 8",
    "load from a number": "%3: i64 = load %2",
    "load of a truth value": "%3: i1 = load %0",
    "load of an unknown type": "%3: i7 = load %0",
    "store to a number": "store %2 %2",
    "store of a truth value": "%3: i1 = const 1\nstore %0 %3",
    "store with a result": "%3: i64 = store %0 %2",
    "offset by a narrow number": "%3: i32 = const 1\n%4: ptr = offset %0 %3",
    "atomic on a narrow number": "%3: i32 = const 1\n%4: i32 = atomic_add %0 %3",
    "no result": "add %2 %2",
    "too few arguments": "%3: i64 = add %2",
    "too many arguments": "%3: i64 = add %2 %2 %2",
    "undefined value": "%3: i64 = add %2 %9",
    "value before its definition": "%3: i64 = add %2 %4\n%4: i64 = const 1",
    "value outside its block": "%3: i1 = const 1\nwhen %3 {\n%4: i64 = const 1\n}\n%5: i64 = add %4 %4",
    "value of the other branch": "%3: i1 = const 1\nwhen %3 {\n%4: i64 = const 1\n} else {\n%5: i64 = add %4 %4\n}",
    "value of a loop after it": "loop {\n%3: i1 = const 1\nbreak_if %3\n}\nwhen %3 {\n}",
    "variable used as a value": "%3: i64 = var %2\n%4: i64 = add %3 %2",
    "value used as a variable": "%3: i64 = get %2",
    "variable set to another type": "%3: i64 = var %2\nset %3 %0",
    "variable read as another type": "%3: i64 = var %2\n%4: i32 = get %3",
    "assigned twice": "%3: i64 = const 1\n%3: i64 = const 2",
    "assigned in both branches": "%3: i1 = const 1\nwhen %3 {\n%4: i64 = const 1\n} else {\n%4: i64 = const 2\n}",
    "parameter assigned": "%2: i64 = const 1",
    "break outside of a loop": "%3: i1 = const 1\nbreak_if %3",
    "break by a number": "loop {\nbreak_if %2\n}",
    "when by a number": "when %2 {\n}",
    "loop that never ends": "loop {\n%3: i64 = add %2 %2\n}",
    "unknown function": "%3: i64 = call @nothing %2",
    "call with another type": "%3: i64 = call @twice %0",
    "call with too few arguments": "%3: i64 = call @twice",
    "call with another result": "%3: i32 = call @twice %2",
    "call that drops its result": "call @twice %2",
    "C function with another type": "%3: ptr = call @malloc %0",
    "value returned from a void function": "ret %2",
    "code after return": "ret\n%3: i64 = add %2 %2",
}  # fmt: skip


@pytest.mark.parametrize("what", ILLEGAL)
def test_verify_refuses(what: str) -> None:
    module = program(ILLEGAL[what], rest=ROUTINE)
    with pytest.raises(IllegalKernel):
        verify(module)


@pytest.mark.parametrize(
    "body",
    [
        "ret",
        "ret %0",
        "%3: i64 = add %2 %2",
        "%3: i1 = const 1\nwhen %3 {\nret %2\n}",
        "loop {\n%3: i1 = const 1\nbreak_if %3\nret %2\n}",
    ],
)
def test_verify_refuses_functions_that_do_not_return_their_type(body: str) -> None:
    with pytest.raises(IllegalKernel):
        verify(program(body, "i64"))


@pytest.mark.parametrize(
    "body", ["ret %2", "%3: i1 = const 1\nwhen %3 {\nret %2\n} else {\nret %2\n}", "loop {\nret %2\n}"]
)
def test_verify_takes_functions_that_return_on_every_path(body: str) -> None:
    verify(program(body, "i64"))


def test_verify_refuses_an_unknown_op() -> None:
    function = KirFunction("main", (), None, [Op("frobnicate", None, None)], [])
    with pytest.raises(IllegalKernel, match="frobnicate"):
        verify(Module({"main": function}))


@pytest.mark.parametrize(
    "text",
    [
        "%3: i64 = frobnicate %2",
        "add %2, %2",
        "%3 = add %2 %2",
        "when %2 {{",
        "} else {",
        "}\n}\nret",
        "%3: i64 = const",
        "%3: i64 = const one",
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="KIR line"):
        program(text)


@pytest.mark.parametrize("text", ["", "ret", "func @main() -> void {\nret"])
def test_parse_refuses_text_that_is_not_whole(text: str) -> None:
    with pytest.raises(ValueError, match="KIR"):
        parse(text)


@pytest.mark.parametrize("type", [t for t in TYPES if t != "ptr"])
def test_constants_print_and_parse(type: str) -> None:
    @hypothesis.settings(max_examples=40, deadline=None, database=None, derandomize=True)
    @hypothesis.given(programs.constant(type))
    def check(value: float) -> None:
        again = kir.parse_const(type, kir.print_const(type, value))
        assert again == value or math.isnan(again) and math.isnan(value)
        assert math.copysign(1, again) == math.copysign(1, value) or math.isnan(value)

    check()


def test_fingerprint_follows_the_text() -> None:
    one, two = program("%3: i64 = add %2 %2"), program("%3: i64 = mul %2 %2")
    assert one.fingerprint() == parse(one.text()).fingerprint() != two.fingerprint()


def test_wrap_is_twos_complement() -> None:
    for type, bits in INTEGERS.items():
        for value in (0, 1, -1, 2 ** (bits - 1), 2**bits - 1, 2**bits):
            wrapped = interp.wrap(value, bits)
            assert (wrapped - value) % 2**bits == 0, type
            assert wrapped in (0, 1) if bits == 1 else -(2 ** (bits - 1)) <= wrapped < 2 ** (bits - 1)
