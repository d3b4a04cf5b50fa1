"""Looks whether bytes are object code as LLVM emits it, before its linker sees them: that one ends the process where they are not.

An object is an ELF file to be linked: sections, symbols that lie in them, and relocations, each of which changes a few bytes of a
section. Everything must lie within the file and within its section. What the instructions do cannot be looked at.
"""

from __future__ import annotations

import os
import struct
import sys

import numpy as np

HEADER = struct.Struct("=4sBBB9xHHIQQQIHHHHHH")
SECTION = struct.Struct("=IIQQQQIIQQ")
SYMBOL = struct.Struct("=IBBHQQ")
RELOCATION = np.dtype([("at", "=u8"), ("kind", "=u4"), ("symbol", "=u4"), ("addend", "=i8")])

MACHINES = {"x86_64": 62, "aarch64": 183}
RELOCATIONS = {62: {1: 8, 2: 4, 4: 4, 9: 4, 10: 4, 11: 4, 24: 8, 25: 8, 27: 8, 29: 8, 41: 4, 42: 4}}
"""By machine: the kinds of relocations that its linker knows, and how many bytes each changes."""

DATA, SYMBOLS, STRINGS, RELOCATED, NO_BYTES, UNWINDING, ADDRESS_TAKEN = 1, 2, 3, 4, 8, 0x70000001, 0x6FFF4C03
KINDS = frozenset((0, DATA, SYMBOLS, STRINGS, RELOCATED, NO_BYTES, UNWINDING, ADDRESS_TAKEN))
WITHOUT_CONTENT = frozenset((0, NO_BYTES))
HOLDING = frozenset((DATA, NO_BYTES, UNWINDING))
"""Sections that symbols are in."""
NO_SECTION = 0xFF00
"""Numbers from here on are no sections: a symbol that is absolute, say."""
OF_THREADS = 6
"""A symbol of which each thread has its own: LLVM's linker has none of these."""
LOADED = 2
"""The flag of a section that is in memory when the code runs."""
UNKNOWN_FLAGS = ~0x90000277
"""Sections of threads, compressed ones, and what is not defined."""
MOST_BYTES, MOST_ALIGNED = 1 << 30, 4096


class DamagedObject(ValueError):
    """The bytes are not those of object code."""


def check_object(code: bytes) -> None:
    """Raise DamagedObject unless the bytes are an object that a linker can follow."""
    try:
        machine, sections, names = _sections(code)
        (table,) = (number for number, section in enumerate(sections) if section[1] == SYMBOLS)
        symbols = _symbols(code, sections, sections[table])
    except struct.error as error:
        raise DamagedObject("a part of it is missing") from error
    except ValueError as error:
        raise DamagedObject(str(error)) from error
    for name, kind, _, _, at, size, link, info, _, entry in sections:
        _require(name < names, "a section has no name")
        if kind == RELOCATED:
            _require(link == table and 0 < info < len(sections) and sections[info][1] in (DATA, UNWINDING) and sections[info][2] & LOADED, "relocations of nothing")
            _require(entry == RELOCATION.itemsize and size % entry == 0, "a table of other records")
            _check_relocations(np.frombuffer(code, RELOCATION, size // entry, at), symbols, sections[info][5], RELOCATIONS.get(machine))


def _sections(code: bytes) -> tuple[int, list[tuple[int, ...]], int]:
    """The machine that the object is for, its sections, and the size of that with their names."""
    magic, wide, order, version, kind, machine, _, _, _, at, _, _, _, segments, section_bytes, count, named = HEADER.unpack_from(code)
    _require(magic == b"\x7fELF" and wide == 2 and order == _ORDER and version == 1 and machine == MACHINES.get(os.uname().machine, machine), "no ELF file of this machine")
    _require(kind == 1 and segments == 0 and section_bytes == SECTION.size and named < count and at % 8 == 0, "no object")
    sections = list(SECTION.iter_unpack(code[at : at + count * SECTION.size]))
    _require(len(sections) == count, "sections are missing")
    for _, kind, flags, _, start, size, link, _, align, _ in sections:
        _require(kind in KINDS and not flags & UNKNOWN_FLAGS and link < count and size <= MOST_BYTES and align <= MOST_ALIGNED and align & (align - 1 if align else 0) == 0, "a section is none")
        _require(kind in WITHOUT_CONTENT or start + size <= len(code), "a section is outside of the file")
    return machine, sections, _check_strings(code, sections[named])


def _symbols(code: bytes, sections: list[tuple[int, ...]], table: tuple[int, ...]) -> int:
    """How many symbols there are."""
    _, _, _, _, start, size, link, local, _, entry = table
    _require(entry == SYMBOL.size and size % entry == 0 and local <= size // entry, "a table of other records")
    names = _check_strings(code, sections[link])
    for name, info, _, owner, value, length in SYMBOL.iter_unpack(code[start : start + size]):
        _require(name < names and info & 15 != OF_THREADS, "a symbol has no name, or is one of threads")
        if 0 < owner < NO_SECTION:
            _require(owner < len(sections) and sections[owner][1] in HOLDING and sections[owner][2] & LOADED and value + length <= sections[owner][5], "a symbol is outside of its section")
    return size // entry


def _check_relocations(found: np.ndarray, symbols: int, room: int, known: dict[int, int] | None) -> None:
    if not len(found):
        return
    _require(int(found["symbol"].max()) < symbols, "a relocation of no symbol")
    for kind in set(found["kind"].tolist()):
        _require(known is None or kind in known, "a relocation of no kind")
        changed = 8 if known is None else known[kind]
        _require(int(found["at"][found["kind"] == kind].max()) + changed <= room, "a relocation is outside of its section")


def _check_strings(code: bytes, section: tuple[int, ...]) -> int:
    """The size of a section of names, each of which ends within it."""
    _, kind, _, _, start, size, _, _, _, _ = section
    _require(kind == STRINGS and size > 0 and code[start + size - 1] == 0, "names without an end")
    return size


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise DamagedObject(otherwise)


_ORDER = 1 if sys.byteorder == "little" else 2
