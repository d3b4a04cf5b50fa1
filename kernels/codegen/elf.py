"""Checks that bytes are object code as LLVM emits it, before LLVM's linker sees them: on other bytes the linker ends
the process.

An object is a relocatable ELF file: sections, symbols in them, and relocations that each change a few bytes of a
section. Everything must lie within the file and within its section. The instructions themselves cannot be checked.
"""

from __future__ import annotations

import os
import struct
import sys

HEADER = struct.Struct("=4sBBB9xHHIQQQIHHHHHH")
SECTION = struct.Struct("=IIQQQQIIQQ")
SYMBOL = struct.Struct("=IBBHQQ")
RELOCATION = struct.Struct("=QIIq")

MACHINES = {"x86_64": 62, "aarch64": 183}
ORDER = 1 if sys.byteorder == "little" else 2
MACHINE = MACHINES.get(os.uname().machine)
RELOCATIONS = (
    {1: 8, 2: 4, 4: 4, 9: 4, 10: 4, 11: 4, 24: 8, 25: 8, 27: 8, 29: 8, 41: 4, 42: 4} if MACHINE == 62 else None
)
"""The relocation kinds that this machine's linker knows, and how many bytes each changes; None if they are not
listed."""

DATA, SYMBOLS, STRINGS, RELOCATED, NO_BYTES, UNWINDING, ADDRESS_TAKEN = 1, 2, 3, 4, 8, 0x70000001, 0x6FFF4C03
KINDS = frozenset((0, DATA, SYMBOLS, STRINGS, RELOCATED, NO_BYTES, UNWINDING, ADDRESS_TAKEN))
WITHOUT_CONTENT = frozenset((0, NO_BYTES))
HOLDING = frozenset((DATA, NO_BYTES, UNWINDING))
"""Sections that symbols may be in."""
SOURCE, NO_SECTION = 4, 0xFFF1
"""The kind of the symbol that names the source file, and its number in place of a section. LLVM's linker does not
support later kinds, such as thread-local symbols."""
LOADED = 2
"""The flag of a section that is loaded into memory."""
UNKNOWN_FLAGS = ~0x90000277
"""Flags of thread-local and compressed sections, and undefined flags."""
MOST_BYTES, ALIGNMENTS = 1 << 30, frozenset((0, *(1 << shift for shift in range(13))))


class DamagedObject(ValueError):
    """The bytes are not object code."""


def check_object(code: bytes) -> None:
    """Raise DamagedObject unless the bytes are an object that a linker can follow."""
    try:
        sections = _sections(code)
        (table,) = (number for number, section in enumerate(sections) if section[1] == SYMBOLS)
        symbols = _symbols(code, sections, sections[table])
        for _, kind, _, _, at, size, link, target, _, entry in sections:
            if kind != RELOCATED:
                continue
            if (
                link != table
                or not 0 < target < len(sections)
                or not sections[target][2] & LOADED
                or sections[target][1] not in HOLDING
            ):
                raise DamagedObject("relocations of nothing")
            if entry != RELOCATION.size:
                raise DamagedObject("relocations of another size")
            _check_relocations(code[at : at + size], symbols, sections[target][5])
    except (struct.error, ValueError) as error:
        raise error if isinstance(error, DamagedObject) else DamagedObject("a part of it is missing") from error


def _sections(code: bytes) -> list[tuple[int, ...]]:
    """The sections, each of which lies within the file and has a name."""
    magic, wide, order, version, kind, machine, _, _, _, at, _, _, _, segments, section_bytes, count, named = (
        HEADER.unpack_from(code)
    )
    if magic != b"\x7fELF" or wide != 2 or order != ORDER or version != 1 or machine != (MACHINE or machine):
        raise DamagedObject("no ELF file of this machine")
    if kind != 1 or segments or section_bytes != SECTION.size or named >= count or at % 8:
        raise DamagedObject("no object")
    sections = list(SECTION.iter_unpack(code[at : at + count * SECTION.size]))
    if len(sections) != count:
        raise DamagedObject("sections are missing")
    names, end = _names_bytes(code, sections[named]), len(code)
    for name, kind, flags, _, start, size, link, _, align, _ in sections:
        if (
            name >= names
            or kind not in KINDS
            or flags & UNKNOWN_FLAGS
            or link >= count
            or size > MOST_BYTES
            or align not in ALIGNMENTS
        ):
            raise DamagedObject("a section that no object has")
        if start + size > end and kind not in WITHOUT_CONTENT:
            raise DamagedObject("a section outside of the file")
    return sections


def _symbols(code: bytes, sections: list[tuple[int, ...]], table: tuple[int, ...]) -> list[int]:
    """The kinds of the symbols, after checking that each is in a section or external."""
    _, _, _, _, start, size, link, local, _, entry = table
    if entry != SYMBOL.size or size % entry or local > size // entry:
        raise DamagedObject("symbols of another size")
    names = _names_bytes(code, sections[link])
    rooms = [size if kind in HOLDING and flags & LOADED else -1 for _, kind, flags, _, _, size, _, _, _, _ in sections]
    kinds = []
    for name, info, _, owner, value, length in SYMBOL.iter_unpack(code[start : start + size]):
        kind = info & 15
        if name >= names or kind > SOURCE:
            raise DamagedObject("a symbol without a name, or of no kind")
        if (
            owner
            and (owner >= len(rooms) or value + length > rooms[owner])
            and not (owner == NO_SECTION and kind == SOURCE)
        ):
            raise DamagedObject("a symbol outside of its section")
        kinds.append(kind)
    return kinds


def _check_relocations(table: bytes, symbols: list[int], room: int) -> None:
    for at, kind, symbol, _ in RELOCATION.iter_unpack(table):
        changed = 8 if RELOCATIONS is None else RELOCATIONS.get(kind)
        if changed is None or symbol >= len(symbols) or symbols[symbol] == SOURCE or at + changed > room:
            raise DamagedObject("a relocation of no kind, of no symbol, or outside of its section")


def _names_bytes(code: bytes, section: tuple[int, ...]) -> int:
    """The size of a section of names, after checking that each name ends within it."""
    _, kind, _, _, start, size, _, _, _, _ = section
    if kind != STRINGS or not 0 < start + size <= len(code) or not size or code[start + size - 1]:
        raise DamagedObject("names without an end")
    return size
