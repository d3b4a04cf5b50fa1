"""Frozen values as plain data and back: plans, expressions and layouts as JSON that the next process reads.

`encode` takes any graph of this package's dataclasses over numbers, texts and tuples. Object identity is preserved by
`decode`. Objects that exist only in a process (tables, dictionaries) are named by the caller. The data contains no
code: a class is found by its name in this package, and must still have the same fields."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Callable
from typing import Any

ROOTS = ("tsql.planner.", "tsql.kernels.")
"""Where the classes of values are defined. Others are not written."""

Name = Callable[[Any], str | None]
Resolve = Callable[[str], Any]


class NotPlain(TypeError):
    """A value that has no plain form."""


class Damaged(ValueError):
    """Data that no version of this code has written."""


class _Encoder:
    """Objects are numbered when complete, so each is written after what it refers to."""

    def __init__(self, name: Name):
        self.name = name
        self.classes: dict[type, int] = {}
        self.fields: list[tuple[str, ...]] = []
        self.objects: list[list[Any]] = []
        self.known: dict[int, int] = {}
        self.alive: list[Any] = []

    def value(self, value: Any) -> Any:
        kind = value.__class__
        if value is None or kind is int or kind is str or kind is bool:
            return value
        if kind is tuple:
            return [self.value(v) for v in value]
        if kind is float:
            return value if math.isfinite(value) else {"f": value.hex() if value == value else "nan"}
        if kind is bytes:
            return {"b": value.hex()}
        if kind is list:
            return {"l": [self.value(v) for v in value]}
        if kind is dict:
            return {"d": [[self.value(k), self.value(v)] for k, v in value.items()]}
        if kind is frozenset:
            return {"s": sorted((self.value(v) for v in value), key=repr)}
        return self.object(value)

    def object(self, value: Any) -> Any:
        number = self.known.get(id(value))
        if number is None:
            name = self.name(value)
            if name is not None:
                return {"x": name}
            number = self.known[id(value)] = self._written(value)
            self.alive.append(value)
        return {"o": number}

    def _written(self, value: Any) -> int:
        kind: type = value.__class__
        index = self.classes.get(kind)
        if index is None:
            if (
                not dataclasses.is_dataclass(kind)
                or not kind.__module__.startswith(ROOTS)
                or "<locals>" in kind.__qualname__
            ):
                raise NotPlain(f"{kind.__module__}.{kind.__qualname__} has no plain form")
            index = self.classes[kind] = len(self.fields)
            self.fields.append(tuple(f.name for f in dataclasses.fields(kind)))
        written = [index, *[self.value(getattr(value, field)) for field in self.fields[index]]]
        self.objects.append(written)
        return len(self.objects) - 1


def encode(value: Any, name: Name = lambda _: None) -> bytes:
    """A value as JSON; `name` gives the names of things that the reader has to supply. Raises NotPlain."""
    encoder = _Encoder(name)
    root = encoder.value(value)
    classes = [
        [kind.__module__, kind.__qualname__, *fields]
        for kind, fields in zip(encoder.classes, encoder.fields, strict=True)
    ]
    return json.dumps({"classes": classes, "objects": encoder.objects, "root": root}, separators=(",", ":")).encode()


def encode_if_plain(value: Any, name: Name = lambda _: None) -> bytes | None:
    """A value as JSON; None for one that has no plain form, or is nested too deeply for it."""
    try:
        return encode(value, name)
    except (NotPlain, RecursionError):
        return None


def decode(data: bytes, resolve: Resolve = lambda name: None) -> Any:
    """The value that was encoded; `resolve` gives the things that were named. Raises Damaged if it is not one."""
    try:
        found = json.loads(data)
        classes = [_class(*described) for described in found["classes"]]
        made: list[Any] = []
        value = _decoder(made, resolve)
        for index, *values in found["objects"]:
            kind, fields = classes[index]
            if len(values) != len(fields):
                raise Damaged(f"{kind.__name__} has {len(fields)} fields, not {len(values)}")
            one = kind.__new__(kind)
            one.__dict__.update(zip(fields, map(value, values), strict=True))
            made.append(one)
        return value(found["root"])
    except Damaged:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ImportError, ArithmeticError, RecursionError) as error:
        raise Damaged(f"not the data of a value: {error}") from error


def _decoder(made: list[Any], resolve: Resolve) -> Callable[[Any], Any]:
    def value(data: Any) -> Any:
        kind = data.__class__
        if kind is list:
            return tuple([value(v) for v in data])
        if kind is not dict:
            return data
        ((tag, content),) = data.items()
        match tag:
            case "o":
                return made[content]
            case "x":
                return resolve(content)
            case "f":
                return float("nan") if content == "nan" else float.fromhex(content)
            case "b":
                return bytes.fromhex(content)
            case "l":
                return [value(v) for v in content]
            case "d":
                return {value(k): value(v) for k, v in content}
            case "s":
                return frozenset(value(v) for v in content)
        raise Damaged(f"unknown tag {tag}")

    return value


def _class(module: str, name: str, *fields: str) -> tuple[type, tuple[str, ...]]:
    if not module.startswith(ROOTS):
        raise Damaged(f"{module} is no place for values")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if (
        not isinstance(found, type)
        or not dataclasses.is_dataclass(found)
        or tuple(f.name for f in dataclasses.fields(found)) != fields
    ):
        raise Damaged(f"{module}.{name} is another class now")
    return found, fields
