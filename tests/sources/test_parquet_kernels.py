"""The parts of the Parquet decoder by themselves: packed integers, bits, Snappy, and where the machine code comes
from."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tsql.backends.io.parquet import decoder as parquet_decoder
from tsql.backends.io.parquet.decoder import TwoTiers
from tsql.kernels.codegen import promote
from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.codegen.llvm import Compiler, compiler
from tsql.kernels.runtime.parquet import bits
from tsql.kernels.runtime.parquet.snappy import decompress

GUARD = b"\xa5" * bits.PADDING


def kernel(call: Callable[..., Val], words: int, interpret: bool) -> Callable[..., int]:
    """A routine as a Python function of integers; addresses are marked by the types of its parameters."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    given, result, _ = k.params
    k.store(result, call(k, *(k.load("i64", given, number) for number in range(words))))
    k.ret()
    k.finish()
    interpreter = Interpreter(module)
    run = (lambda a, b, c: interpreter("main", a, b, c)) if interpret else compiler().compile(module).function

    def function(*arguments: int) -> int:
        record, status = (ctypes.c_int64 * words)(*arguments), ctypes.c_int64(0)
        run(ctypes.addressof(record), ctypes.addressof(status), 0)
        return status.value

    return function


def indices(interpret: bool) -> Callable[..., int]:
    return kernel(
        lambda k, s, t, n, limit: bits.read_indices(k, s.bits_as("ptr"), t.bits_as("ptr"), n, limit), 4, interpret
    )


def hybrid(choose: random.Random, width: int, count: int) -> tuple[bytes, list[int]]:
    """Random runs of both kinds, and the values in them."""
    encoded, values = bytearray(), []
    while len(values) < count:
        if choose.random() < 0.5:
            repeats, value = choose.randint(1, 30), choose.getrandbits(width) if width else 0
            encoded += varint(repeats << 1) + value.to_bytes((width + 7) // 8, "little")
            values += [value] * repeats
        else:
            groups = choose.randint(1, 9)
            packed = [choose.getrandbits(width) if width else 0 for _ in range(groups * 8)]
            encoded += varint(groups << 1 | 1) + sum(v << (width * i) for i, v in enumerate(packed)).to_bytes(
                groups * width, "little"
            )
            values += packed
    return bytes(encoded), values


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def stream(data: bytes, width: int) -> tuple[ctypes.Array[ctypes.c_int64], ctypes.Array[ctypes.c_char]]:
    memory = ctypes.create_string_buffer(data + GUARD)
    start = ctypes.addressof(memory)
    return (ctypes.c_int64 * bits.STREAM_WORDS)(start, start + len(data), 0, 0, 0, width), memory


@pytest.mark.parametrize("interpret", [False, True])
def test_indices_of_every_width(interpret: bool) -> None:
    read = indices(interpret)
    for width in range(33):
        choose = random.Random(width)
        data, values = hybrid(choose, width, 60 if interpret else 3000)
        record, memory = stream(data, width)
        found: list[int] = []
        while len(found) < len(values):
            count = min(choose.choice((1, 7, 8, 100, 1024)), len(values) - len(found))
            target = (ctypes.c_uint32 * (count + 16))()
            assert read(ctypes.addressof(record), ctypes.addressof(target) + 32, count, 1 << 32) == 0, width
            found += target[8 : 8 + count]
        assert found == values, width
        assert memory.raw.endswith(GUARD + b"\0")


def test_indices_stop_at_the_end_and_at_the_limit() -> None:
    read, target = indices(False), (ctypes.c_uint32 * 200)()
    for width, data, count, limit, status in (
        (3, b"", 1, 8, bits.CUT),
        (3, b"\x03\xff", 8, 8, bits.CUT),
        (3, b"\x03\xff\xff\xff", 8, 7, bits.WRONG_INDEX),
        (3, b"\x03\xff\xff\xff", 8, 8, 0),
        (3, b"\x03\xff\xff\xff", 9, 8, bits.CUT),
        (9, b"\x10\xff", 8, 600, bits.CUT),
        (9, b"\x10\xff\x01", 8, 511, bits.WRONG_INDEX),
        (9, b"\x10\xff\x01", 8, 512, 0),
        (3, b"\x00", 1, 8, bits.WRONG_RUN),
        (3, b"\x01", 1, 8, bits.WRONG_RUN),
        (3, b"\xff\xff\xff\xff\xff\xff\xff\xff", 1, 8, bits.WRONG_RUN),
        (3, b"\xff\xff\xff\xff\x7f", 1, 8, bits.CUT),
        (0, b"\x03", 8, 1, 0),
        (0, b"\x10", 8, 0, bits.WRONG_INDEX),
    ):
        record, _ = stream(data, width)
        assert read(ctypes.addressof(record), ctypes.addressof(target) + 32, count, limit) == status, (
            width,
            data,
            count,
        )


@pytest.mark.parametrize("interpret", [False, True])
def test_bits_at_any_place(interpret: bool) -> None:
    read = kernel(
        lambda k, s, n, bitmap, start: bits.read_bits(k, s.bits_as("ptr"), n, bitmap.bits_as("ptr"), start),
        4,
        interpret,
    )
    for seed in range(10):
        choose = random.Random(seed)
        data, values = hybrid(choose, 1, 60 if interpret else 2000)
        record, _ = stream(data, 1)
        offset = choose.randrange(20)
        bitmap = ctypes.create_string_buffer((offset + len(values)) // 8 + 16)
        done = 0
        while done < len(values):
            count = min(choose.choice((1, 5, 64, 333)), len(values) - done)
            assert read(ctypes.addressof(record), count, ctypes.addressof(bitmap), offset + done) == sum(
                values[done : done + count]
            )
            done += count
        assert int.from_bytes(bitmap.raw, "little") >> offset == sum(v << i for i, v in enumerate(values)), seed
    record, _ = stream(b"\x10\x02", 1)
    assert read(ctypes.addressof(record), 8, ctypes.addressof(bitmap), 0) == -bits.WRONG_LEVEL


def texts(choose: random.Random, size: int) -> bytes:
    """Bytes that compress in all the ways there are: new ones, near and far copies, copies of themselves."""
    data = bytearray()
    while len(data) < size:
        match choose.randrange(4):
            case 0:
                data += choose.randbytes(choose.choice((1, 3, 17, 70, 400)))
            case 1:
                data += choose.randbytes(choose.choice((1, 2, 3, 5, 9))) * choose.randint(2, 40)
            case 2 if data:
                start = choose.randrange(len(data))
                data += data[start : start + choose.randint(1, 90)]
            case _:
                data += choose.randrange(1 << 24).to_bytes(8, "little")
    return bytes(data[:size])


def snappy(interpret: bool) -> Callable[[bytes, int], tuple[int, bytes]]:
    call = kernel(lambda k, s, n, t, m: decompress(k, s.bits_as("ptr"), n, t.bits_as("ptr"), m), 4, interpret)

    def run(data: bytes, size: int) -> tuple[int, bytes]:
        source, target = (
            ctypes.create_string_buffer(data + GUARD),
            ctypes.create_string_buffer(b"\0" * (size + bits.PADDING) + GUARD),
        )
        status = call(ctypes.addressof(source), len(data), ctypes.addressof(target), size)
        assert target.raw[size + bits.PADDING :] == GUARD + b"\0", "written behind the padding"
        return status, target.raw[:size]

    return run


@pytest.mark.parametrize("interpret", [False, True])
def test_snappy(interpret: bool) -> None:
    run = snappy(interpret)
    for seed, size in enumerate(
        (0, 1, 7, 60, 61, 300, 700) if interpret else (0, 1, 59, 60, 61, 62, 255, 256, 257, 5000, 66_000, 200_000)
    ):
        plain = texts(random.Random(seed), size)
        data = pa.Codec("snappy").compress(plain, asbytes=True)
        assert run(data, size) == (0, plain), size
        assert run(data, size + 1)[0] == bits.WRONG_SIZE


def test_damaged_snappy_never_leaves_its_buffers() -> None:
    run = snappy(False)
    for seed in range(300):
        choose = random.Random(seed)
        plain = texts(choose, choose.randint(1, 900))
        data = bytearray(pa.Codec("snappy").compress(plain, asbytes=True))
        assert run(bytes(data[: choose.randrange(len(data))]), len(plain))[0] != 0
        for _ in range(choose.randint(1, 5)):
            data[choose.randrange(2, len(data)) if len(data) > 2 else 1] = choose.randrange(256)
        run(bytes(data), len(plain))


@pytest.mark.parametrize(
    "data",
    [
        b"\x04\x01\x00",
        b"\x04\x0cabcd\x01\x00",
        b"\x04\x00a\x01\x05",
        b"\x08\x0cabcd\x11\x05",
        b"\x08\x0cabcd\x0f\xff\xff\xff\xff",
        b"\x04\xfc\xff\xff\xff\xff",
        b"\x04\x0cabcde",
        b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_malformed_snappy(data: bytes) -> None:
    assert snappy(False)(data, data[0] if data[0] < 128 else 4)[0] in (bits.WRONG_CODE, bits.WRONG_SIZE)


def test_the_full_version_follows_the_quick_one_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TSQL_BETTER_CODE")
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    fresh = Compiler()
    monkeypatch.setattr(parquet_decoder, "compiler", lambda: fresh)
    monkeypatch.setattr(promote, "compiler", lambda: fresh)
    tiers = TwoTiers()
    quick = tiers.get(10)
    promote.promoter.wait()
    assert tiers.get(10) is quick
    tiers.get(parquet_decoder.MANY_VALUES)
    promote.promoter.wait()
    assert tiers.get(10) is not quick

    def emitted() -> Module:
        raise AssertionError("the kernel was emitted again")

    fresh = Compiler()
    monkeypatch.setattr(parquet_decoder, "decoder_module", emitted)
    again = TwoTiers()
    assert again.get(10) is not None and again._quick is None
    monkeypatch.setattr(parquet_decoder, "_name", lambda: "another decoder")
    with pytest.raises(AssertionError):
        TwoTiers().get(10)
