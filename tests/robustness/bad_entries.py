"""Invalid contents of cache entries: JSON, heads of plans and of code, and objects with one error each."""

from __future__ import annotations

from random import Random

from tsql.kernels.codegen.elf import HEADER, SECTION, SYMBOL
from tsql.kernels.codegen.objects import ObjectCode

HUGE = b"1" * 10_000
JSON = {
    "empty": b"",
    "text": b"garbage",
    "not UTF-8": b"\xff\xfe{}",
    "null": b"null",
    "a list": b"[1]",
    "nested": b"[" * 200_000,
    "nested objects": b'{"root":' * 100_000,
    "numbers without end": (
        b'{"depends":{},"parameters":[],"start":Infinity,"length":NaN}\n{"classes":[],"objects":[],"root":1}'
    ),
    "a long number": b'{"classes":[],"objects":[],"root":' + HUGE + b"}",
    "a large float": b'{"classes":[],"objects":[],"root":{"f":"0x1p99999"}}',
    "another module": b'{"classes":[["os","system"]],"objects":[[0]],"root":{"o":0}}',
    "no class": b'{"classes":[["tsql.kernels.expr.types","nothing"]],"objects":[[0]],"root":{"o":0}}',
    "no object": b'{"classes":[],"objects":[],"root":{"o":7}}',
    "no dictionary": b'{"classes":[],"objects":[],"root":{"x":"7"}}',
    "no list": b'{"classes":[],"objects":[],"root":{"l":7}}',
    "other parts": b'{"classes":[],"objects":[],"root":["f",{"l":[1,2]},{"l":[]},[]]}',
    "other reads": b'{"classes":[],"objects":[],"root":["f",{"l":[]},{"l":[]},[1]]}',
    "too few parts": b'{"classes":[],"objects":[],"root":["f",{"l":[]}]}',
}

HEADS = {
    "parameters": {"parameters": ["a"]},
    "numbers as parameters": {"parameters": 7},
    "start": {"start": -5},
    "a float": {"start": 1.5},
    "an endless start": {"start": float("inf")},
    "a text": {"length": "all"},
    "other questions": {"depends": {"order nothing": "x"}},
    "no questions": {"depends": 7},
}


def changed_object(code: bytes, bad: str) -> bytes:
    """An object with one error."""
    head, changed = list(HEADER.unpack_from(code)), bytearray(code)
    at, count = head[9], head[15]
    sections = [list(one) for one in SECTION.iter_unpack(code[at : at + count * SECTION.size])]
    relocated = next(number for number, one in enumerate(sections) if one[1] == 4)
    symbols = next(number for number, one in enumerate(sections) if one[1] == 2)
    match bad:
        case "cut":
            return code[: len(code) // 2]
        case "garbage":
            return Random(5).randbytes(len(code))
        case "another machine":
            head[5] = 8
        case "another format":
            head[4] = 3
        case "too many sections":
            head[15] = 65000
        case "sections outside":
            head[9] = 1 << 40
        case "a section outside":
            sections[relocated][4] = len(code)
        case "a large section":
            sections[relocated][5] = 1 << 62
        case "a link to nothing":
            sections[symbols][6] = 999
        case "relocations of nothing":
            sections[relocated][7] = 999
        case "an unloaded section":
            sections[sections[relocated][7]][2] = 0
        case "a relocation outside":
            changed[sections[relocated][4] : sections[relocated][4] + 8] = (1 << 40).to_bytes(8, "little")
        case "a relocation of nothing":
            changed[sections[relocated][4] + 12 : sections[relocated][4] + 16] = (1 << 30).to_bytes(4, "little")
        case "a relocation of the source":
            table = code[sections[symbols][4] : sections[symbols][4] + sections[symbols][5]]
            source = next(number for number, one in enumerate(SYMBOL.iter_unpack(table)) if one[1] & 15 == 4)
            changed[sections[relocated][4] + 12 : sections[relocated][4] + 16] = source.to_bytes(4, "little")
        case "a relocation of no kind":
            changed[sections[relocated][4] + 8 : sections[relocated][4] + 12] = (200).to_bytes(4, "little")
        case "a symbol outside":
            last = sections[symbols][4] + sections[symbols][5] - 24
            changed[last + 6 : last + 16] = sections[relocated][7].to_bytes(2, "little") + (1 << 40).to_bytes(
                8, "little"
            )
        case "a symbol of no section":
            last = sections[symbols][4] + sections[symbols][5] - 24
            changed[last + 6 : last + 8] = b"\xf2\xff"
        case "a symbol of threads":
            changed[sections[symbols][4] + 24 + 4] = 6
        case "names without an end":
            names = sections[sections[symbols][6]]
            changed[names[4] + names[5] - 1] = 65
    HEADER.pack_into(changed, 0, *head)
    for number, section in enumerate(sections):
        if at + (number + 1) * SECTION.size <= len(changed):
            SECTION.pack_into(changed, at + number * SECTION.size, *section)
    return bytes(changed)


OBJECTS = (
    "cut", "garbage", "another machine", "another format", "too many sections", "sections outside", "a section outside",
    "a large section", "a link to nothing", "relocations of nothing", "an unloaded section", "a relocation outside",
    "a relocation of nothing", "a relocation of no kind", "a symbol outside", "a symbol of threads",
    "a relocation of the source", "a symbol of no section", "names without an end",
)  # fmt: skip

HEADS_OF_CODE = {
    "empty": lambda code: b"",
    "too long a head": lambda code: (1 << 31).to_bytes(4, "little") + code,
    "nested": lambda code: (200_000).to_bytes(4, "little") + b"[" * 200_000 + code,
    "no exports": lambda code: b"\x08\0\0\0[[], {}]" + code,
    "numbers": lambda code: b"\x09\0\0\0[[1], {}]" + code,
    "another name": lambda code: ObjectCode(code, ("another",)).encode(),
    "another routine": lambda code: ObjectCode(code, ("main", "another")).encode(),
    "a name with NUL": lambda code: ObjectCode(code, ("ma\0in",)).encode(),
    "half a character": lambda code: ObjectCode(code, ("\ud800",)).encode(),
    "imports from nowhere": lambda code: ObjectCode(code, ("main",), {"another": "0" * 64}).encode(),
    "imports from a path": lambda code: ObjectCode(code, ("main",), {"another": "../../etc/passwd"}).encode(),
    "imports from NUL": lambda code: ObjectCode(code, ("main",), {"another": "\0"}).encode(),
}
