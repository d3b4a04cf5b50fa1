"""Dataclasses whose methods are generated at their first call: as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from tsql.kernels.process.quick_dataclass import dataclass as quick


def classes(dataclass: Any) -> dict[str, Any]:
    """The same classes by either decorator."""

    @dataclass(frozen=True)
    class Point:
        """A point."""

        kinds: ClassVar[int] = 3
        x: int
        y: float = 1.5
        tags: tuple[str, ...] = ()

    @dataclass(frozen=True)
    class Named(Point):
        name: str = field(default="", compare=False)
        secret: int = field(default=7, repr=False)

    @dataclass
    class Counter:
        start: int
        seen: list[int] = field(default_factory=list)
        total: int = field(init=False, default=0)
        made: dict[str, int] = field(init=False, default_factory=dict)
        last: int | None = field(default=None, kw_only=True)

        def __post_init__(self) -> None:
            self.total = self.start + len(self.seen)

    @dataclass(frozen=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, eq=False)
    class Alone:
        x: int

    @dataclass
    class Empty:
        pass

    @dataclass(slots=True)
    class Small:
        x: int = 1

    return {c.__name__: c for c in (Point, Named, Counter, Own, Alone, Empty, Small)}


QUICK, PLAIN = classes(quick), classes(dataclasses.dataclass)


def both(call: Any) -> Any:
    """What a call gives, or raises, with either decorator, which must be the same."""
    found = []
    for made in (QUICK, PLAIN):
        try:
            found.append(call(made))
        except (TypeError, AttributeError) as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("again", (False, True))
def test_objects(again: bool) -> None:
    del again  # the second time all methods are made
    text = both(lambda c: repr(c["Named"](1, name="n")).replace("classes.<locals>.", ""))
    assert text == "Named(x=1, y=1.5, tags=(), name='n')"
    both(lambda c: c["Point"](1) == c["Point"](1, 1.5))
    both(lambda c: c["Point"](1) == c["Named"](1))
    both(lambda c: c["Named"](1, name="a") == c["Named"](1, name="b"))
    both(lambda c: c["Point"](1) == 1)
    assert both(lambda c: hash(c["Point"](1, 2.0, ("a",)))) == hash((1, 2.0, ("a",)))
    both(lambda c: hash(c["Named"](1)))
    both(lambda c: hash(c["Own"](1)))
    assert both(lambda c: c["Alone"](1) == c["Alone"](1)) is False
    assert both(lambda c: hash(c["Counter"](1)))[0] is TypeError
    both(lambda c: repr(c["Counter"](1, [2], last=3)))
    both(lambda c: c["Counter"](1).seen is c["Counter"](1).seen)
    both(lambda c: repr(c["Own"](1)) + repr(c["Empty"]()) + repr(c["Small"]()))
    both(lambda c: c["Empty"]() == c["Empty"]())
    both(lambda c: vars(c["Counter"](5)))


def test_wrong_arguments() -> None:
    assert both(lambda c: c["Point"]())[0] is TypeError
    assert both(lambda c: c["Counter"](1, [], 3))[0] is TypeError
    assert both(lambda c: c["Point"](1, z=3))[0] is TypeError


def test_frozen() -> None:
    def change(made: Any) -> None:
        made["Named"](1).x = 2

    def forget(made: Any) -> None:
        del made["Point"](1).x

    def add(made: Any) -> None:
        made["Point"](1).more = 2

    for attempt in (change, forget, add):
        assert both(attempt)[0] is FrozenInstanceError


def test_what_the_library_does_with_them() -> None:
    assert both(lambda c: [f.name for f in dataclasses.fields(c["Named"])]) == ["x", "y", "tags", "name", "secret"]
    assert both(lambda c: c["Named"].__match_args__) == ("x", "y", "tags", "name", "secret")
    assert both(lambda c: c["Counter"].__match_args__) == ("start", "seen")
    both(lambda c: dataclasses.asdict(dataclasses.replace(c["Named"](1), x=5)))
    both(lambda c: vars(copy.copy(c["Named"](1, name="n"))))
    assert all(map(dataclasses.is_dataclass, QUICK.values()))
    match QUICK["Point"](1, 2.0):
        case object(x=1, y=y):
            assert y == 2.0


@quick(frozen=True)
class Kept:
    x: int


def test_pickled_before_a_method_is_made() -> None:
    one = Kept.__new__(Kept)
    one.__dict__["x"] = 3
    again = pickle.loads(pickle.dumps(one))
    assert again == one and hash(again) == hash(one) and repr(again) == "Kept(x=3)"


def test_recursive_text() -> None:
    made = QUICK["Counter"](1)
    made.seen.append(made)
    assert "..." in repr(made)


def test_no_class_of_the_package_is_another() -> None:
    """A class and those it inherits from come from one decorator; so that none is left out, all do."""
    from tests.test_project import ROOT

    quick, others = [], []
    for folder in ("tsql", "planner", "kernels", "backends"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = path.read_text(encoding="utf-8").splitlines()
            taken = [line.partition(" import ")[2] for line in lines if line.startswith("from dataclasses import")]
            if any("dataclass" in names.replace(",", " ").split() for names in taken):
                others.append(str(path.relative_to(ROOT)))
            elif "from tsql.kernels.process.quick_dataclass import dataclass" in lines:
                quick.append(path)
    assert not (quick and others), "take dataclass from tsql.kernels.process.quick_dataclass: " + ", ".join(others)
