"""Programs on disk: a pipeline that an earlier process has emitted is not emitted again.

The key is a description of the pipeline: everything that its source, operators and sink hold after the sink has seen a
row (expressions, layouts, bounds, dictionaries). A pipeline that holds anything but plain values has no description,
and is always emitted. An entry holds what the host must know (slots, failure sites) and the fingerprint of the object
code (`kernels/codegen/object_cache.py`). KIR is emitted only on request."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import types
from functools import cache, cached_property
from typing import Any

from tsql.kernels.codegen.kir import KirFunction, Module
from tsql.kernels.codegen.lang import Kernel, Val, Var
from tsql.kernels.codegen.object_cache import UNUSABLE, cache_directory, read_entry, write_later
from tsql.kernels.emit.batch import Dictionary
from tsql.kernels.emit.context import Program, Site, Slot
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.identity import code_identity
from tsql.kernels.expr.plain import Damaged, NotPlain, decode, encode_if_plain
from tsql.kernels.expr.types import Type

FORMAT = 2
"""Part of the key: raise it when entries are written differently."""

CHECKED = False
"""Whether stored programs are checked for side effects of emission. Tests turn it on."""

_PLAIN = frozenset((type(None), int, str, bool, float, bytes))
_EMISSION = (Val, Var, Kernel, Datum)
"""Values that operators keep during emission. They mean nothing afterwards."""


def is_on() -> bool:
    """Whether programs are stored. Off if TSQL_STORED_PLANS=0 or if there is no cache."""
    return os.environ.get("TSQL_STORED_PLANS") != "0" and cache_directory() is not None


class Description:
    """A digest of a pipeline's parts, and the dictionaries that it refers to in order of first use."""

    def __init__(self, pipeline: Any):
        self.dictionaries: list[Dictionary] = []
        self._met: dict[int, int] = {}
        self._alive: list[Any] = []
        self.words: list[Any] = [FORMAT, code_identity()]
        for part in (pipeline.source, *pipeline.operators, pipeline.sink):
            self._add(part)
        self.key = hashlib.sha256(repr(self.words).encode()).hexdigest()

    def _add(self, value: Any) -> None:
        kind = value.__class__
        if kind in _PLAIN:
            self.words.append(value)
            return
        if kind is Type:
            self.words.append((value.name, value.width, value.scale))
            return
        if kind is tuple:
            self.words.append(("tuple", len(value)))
            for one in value:
                self._add(one)
            return
        # Expressions that are the same object share a slot, so identity matters for them. Types and tuples are values.
        met = self._met.get(id(value))
        if met is not None:
            self.words.append((met,))
            return
        self._met[id(value)] = len(self._met)
        self._alive.append(value)
        if kind is list:
            self.words.append(("list", len(value)))
            for one in value:
                self._add(one)
        elif kind is dict:
            self.words.append(("dict", len(value)))
            for name, one in value.items():
                self._add(name)
                self._add(one)
        else:
            self._add_object(value, kind)

    def _add_object(self, value: Any, kind: type) -> None:
        fields = _fields(kind)
        if fields is not None:
            name, names = fields
            self.words.append(name)
            for field in names:
                self._add(getattr(value, field))
        elif kind is Dictionary:
            self.words.append(("dictionary", _digest(value)))
            self.dictionaries.append(value)
        elif kind is frozenset or kind is set:
            if not all(one.__class__ in (int, str) for one in value):
                raise NotPlain("a set of objects has no order")
            self.words.append(("set", sorted(value, key=repr)))
        elif isinstance(value, type) or (
            kind is types.FunctionType and value.__closure__ is None and "<" not in value.__qualname__
        ):
            self.words.append((kind.__name__, value.__module__, value.__qualname__))
        elif (
            kind.__module__.startswith("tsql.kernels.")
            and not isinstance(value, _EMISSION)
            and hasattr(value, "__dict__")
        ):
            # Cached attributes follow from the rest.
            own = {
                name: one
                for name, one in value.__dict__.items()
                if not isinstance(getattr(kind, name, None), cached_property) and not _is_of_emission(value, name, one)
            }
            self.words.append((kind.__module__, kind.__qualname__, *own))
            for one in own.values():
                self._add(one)
        else:
            raise NotPlain(f"{kind.__module__}.{kind.__qualname__} cannot be described")

    def name_of(self, value: Any) -> str | None:
        """The number of a dictionary in the description, by which an entry refers to it; None for other values."""
        return next((str(number) for number, one in enumerate(self.dictionaries) if one is value), None)

    def difference(self, other: Description | None) -> str:
        """Where two descriptions differ."""
        after = [] if other is None else other.words
        at = next(
            (i for i, (a, b) in enumerate(zip(self.words, after, strict=False)) if a != b),
            min(len(self.words), len(after)),
        )
        return f"{self.words[max(0, at - 3) : at + 2]} is {after[max(0, at - 3) : at + 2]} afterwards"


def _is_of_emission(owner: Any, name: str, value: Any) -> bool:
    """Whether an attribute means something only while its owner emits."""
    return isinstance(value, _EMISSION) or name in getattr(owner, "transient", ())


@cache
def _fields(kind: type) -> tuple[tuple[str, str], tuple[str, ...]] | None:
    """The name and the fields of a dataclass that can be described; None for other classes."""
    if (
        not dataclasses.is_dataclass(kind)
        or not kind.__module__.startswith("tsql.kernels.")
        or issubclass(kind, (Dictionary, *_EMISSION))
        or hasattr(kind, "__slots__")
    ):
        return None
    return (kind.__module__, kind.__qualname__), tuple(f.name for f in dataclasses.fields(kind))


def _digest(dictionary: Dictionary) -> str:
    """A digest of a dictionary's strings; kept with it."""
    known = dictionary.__dict__.get("_digest")
    if known is None:
        found = hashlib.sha256(f"{dictionary.values.type} {len(dictionary)} {dictionary.values.offset}".encode())
        for buffer in dictionary.values.buffers():
            if buffer is not None:
                found.update(buffer)
        known = dictionary.__dict__["_digest"] = found.hexdigest()
    return known


def described(pipeline: Any) -> Description | None:
    """The description of a pipeline whose sink is laid out; None if it has none, or nothing is stored."""
    if not is_on():
        return None
    try:
        return Description(pipeline)
    except NotPlain:
        return None


class KnownModule(Module):
    """A module with a known fingerprint. `make` emits its functions if they are needed."""

    __slots__ = ("_known", "_made", "_make")

    def __init__(self, fingerprint: str, make: Any):
        self.main, self.exports = "main", ()
        self._known, self._make = fingerprint, make
        self._made: dict[str, KirFunction] | None = None

    # Nobody sets the functions of such a module.
    @property
    def functions(self) -> dict[str, KirFunction]:  # type: ignore[override]
        if self._made is None:
            module = self._make()
            if module.fingerprint() != self._known:
                raise AssertionError("a stored program is not that of its pipeline")
            self._made = module.functions
        return self._made

    def fingerprint(self) -> str:
        return self._known


def find(about: Description, make: Any) -> Program | None:
    """The stored program of a pipeline with this description; `make` emits its module."""
    data = read_entry("program", about.key, code_identity())
    if data is None:
        return None
    dictionaries = {str(number): one for number, one in enumerate(about.dictionaries)}
    try:
        fingerprint, slots, sites, reads = decode(data, dictionaries.__getitem__)
        _check(fingerprint, slots, sites, reads)
    except UNUSABLE:
        return None
    return Program(KnownModule(fingerprint, make), slots, sites, reads)


def _check(fingerprint: Any, slots: Any, sites: Any, reads: Any) -> None:
    """Raise Damaged unless these are the parts of a program."""
    if not (
        isinstance(fingerprint, str)
        and all(
            isinstance(parts, list) and all(isinstance(one, kind) for one in parts)
            for parts, kind in ((slots, Slot), (sites, Site))
        )
        and isinstance(reads, tuple)
        and all(isinstance(name, str) for name in reads)
    ):
        raise Damaged("not the parts of a program")


def keep(about: Description, pipeline: Any, program: Program) -> None:
    """Store a program, unless a slot holds a value that is not plain. A process that finds it does not emit. So
    whatever emission leaves in the pipeline must be part of the program or unused later (`transient`); `CHECKED`
    verifies this."""
    if CHECKED:
        after = described(pipeline)
        assert after is not None and after.words == about.words, (
            f"emission has changed what {pipeline.name} is described by: {about.difference(after)}"
        )
    parts = (program.module.fingerprint(), program.slots, program.sites, program.reads)
    write_later("program", about.key, lambda: encode_if_plain(parts, about.name_of), code_identity())
