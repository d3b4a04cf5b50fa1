"""Thrift's compact protocol, as far as Parquet footers need it: `decode` turns bytes into plain Python values.

Written here because pyarrow (26.0) ends the process on some damaged footers when asked for a column chunk from Python.
All functions raise IndexError or ValueError on bytes that are not what they should be.
"""

from __future__ import annotations

import struct
from typing import Any

STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number and the offset after it."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def field(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """(field id, type, offset of the value) of a field header; type STOP ends a struct."""
    head = data[at]
    if head == STOP:
        return last, STOP, at + 1
    if head >> 4:
        return last + (head >> 4), head & 15, at + 1
    number, at = varint(data, at + 1)
    return (number >> 1) ^ -(number & 1), head & 15, at


def header(number: int, last: int, kind: int) -> bytes:
    """The bytes of a field header."""
    if 0 < number - last <= 15:
        return bytes([(number - last) << 4 | kind])
    encoded, rest = bytearray([kind]), number << 1 if number >= 0 else (-number << 1) - 1
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes(encoded) + bytes([rest])


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """(length, type of the elements, offset of the first)."""
    head = data[at]
    if head >> 4 != 15:
        return head >> 4, head & 15, at + 1
    count, end = varint(data, at + 1)
    if count > len(data):
        raise ValueError("a list is longer than the data")
    return count, head & 15, end


def decode(data: bytes, at: int, kind: int, depth: int = 0) -> tuple[Any, int]:
    """A value and the offset after it: int, float, bool, bytes, list, or a dict of field ids for a struct."""
    if kind in _INTEGERS:
        number, at = varint(data, at)
        return (number >> 1) ^ -(number & 1), at
    if kind == BINARY:
        length, at = varint(data, at)
        if at + length > len(data):
            raise ValueError("cut off")
        return data[at : at + length], at + length
    if depth > 32:
        raise ValueError("nested too deeply")
    if kind == STRUCT:
        found: dict[int, Any] = {}
        number = 0
        while True:
            number, item, at = field(data, at, number)
            if item == STOP:
                return found, at
            found[number], at = decode(data, at, item, depth + 1)
    if kind in (LIST, SET):
        count, item, at = list_header(data, at)
        values = []
        for _ in range(count):
            if item in (TRUE, FALSE):
                value, at = data[at] == TRUE, at + 1
            else:
                value, at = decode(data, at, item, depth + 1)
            values.append(value)
        return values, at
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    raise ValueError(f"unknown type {kind}")
