"""`dataclass` for classes of which most processes load many and use few: as in the standard library, but a method is
generated on its first call.

The standard library compiles up to six methods per class, 0.3 ms; a process that runs one query loads 200 classes and
makes objects of 40. Here a class costs 15 us until its first object. After a method's first call nothing differs: it is
compiled as the standard library would have done. `fields`, `replace`, `is_dataclass`, pickling and `match` work as
usual. A class and the dataclasses that it inherits from must use the same decorator: Python rejects a mixture of frozen
and other classes, and regards these as not frozen. So all classes of this package use this one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, repr: bool = True, eq: bool = True, frozen: bool = False, slots: bool = False
    ) -> Any:
        """The decorator; the options that are used in this package."""

        def decorate(cls: type) -> type:
            if slots:
                return dataclasses.dataclass(cls, repr=repr, eq=eq, frozen=frozen, slots=True)
            return _decorated(cls, repr, eq, frozen)

        return decorate if cls is None else decorate(cls)


__all__ = ["dataclass"]


def _decorated(cls: Any, repr: bool, eq: bool, frozen: bool) -> Any:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # the standard library would print a signature, which takes longer than all the rest
    own = cls.__dict__
    # A class that defines __eq__ has __hash__ = None without having asked for it.
    has_hash = own.get("__hash__", _NOTHING) is not _NOTHING and not (own["__hash__"] is None and "__eq__" in own)
    cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False)
    if "__init__" not in own:
        _later(cls, "__init__", lambda: _init(cls, frozen))
    if repr and "__repr__" not in own:
        _later(cls, "__repr__", lambda: _repr(cls))
    if eq:
        if "__eq__" not in own:
            _later(cls, "__eq__", lambda: _eq(cls))
        if not has_hash:
            if frozen:
                _later(cls, "__hash__", lambda: _hash(cls))
            else:
                cls.__hash__ = None
    if frozen:
        _freeze(cls)
    return cls


_NOTHING = object()


def _later(cls: type, name: str, make: Callable[[], Callable[..., Any]]) -> None:
    """Give a class a method that is made on its first call. Two threads may both make it; the results are equal."""

    def first(self: Any, *args: Any, **named: Any) -> Any:
        made = make()
        made.__qualname__ = first.__qualname__
        made.__module__ = cls.__module__
        setattr(cls, name, made)
        return made(self, *args, **named)

    first.__name__ = name
    first.__qualname__ = f"{cls.__qualname__}.{name}"
    setattr(cls, name, first)


def _freeze(cls: Any) -> None:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


def _function(name: str, arguments: str, lines: list[str], names: dict[str, Any]) -> Any:
    exec(f"def {name}({arguments}):\n " + "\n ".join(lines), names)
    return names[name]


def _init(cls: type, frozen: bool) -> Any:
    names: dict[str, Any] = {"_set": object.__setattr__, "_nothing": _NOTHING}
    positional: list[str] = ["self"]
    named: list[str] = []
    lines: list[str] = []
    for number, field in enumerate(dataclasses.fields(cls)):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"_make_{number}"] = field.default_factory
            value = f"_make_{number}() if {name} is _nothing else {name}" if field.init else f"_make_{number}()"
            default = "=_nothing"
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{number}"] = field.default
            default = f"=_default_{number}"
        else:
            default = ""
        if field.init:
            (named if field.kw_only else positional).append(name + default)
        elif field.default_factory is dataclasses.MISSING:
            continue  # its default is an attribute of the class
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return _function("__init__", ", ".join([*positional, *(["*"] if named else []), *named]), lines or ["pass"], names)


def _values(owner: str, names: list[str]) -> str:
    return f"({''.join(f'{owner}.{name}, ' for name in names)})"


def _eq(cls: type) -> Any:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    same = f"return {_values('self', compared)} == {_values('other', compared)}"
    return _function(
        "__eq__",
        "self, other",
        ["if other.__class__ is self.__class__:", f" {same}", "return NotImplemented"],
        {},
    )


def _hash(cls: type) -> Any:
    hashed = [field.name for field in dataclasses.fields(cls) if (field.compare if field.hash is None else field.hash)]
    return _function("__hash__", "self", [f"return hash({_values('self', hashed)})"], {})


def _repr(cls: type) -> Any:
    from reprlib import recursive_repr

    shown = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in dataclasses.fields(cls) if field.repr)
    text = f'return self.__class__.__qualname__ + f"({shown})"'
    return recursive_repr()(_function("__repr__", "self", [text], {}))
