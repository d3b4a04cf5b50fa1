"""For a test over a product of parameters, the default run takes every n-th diagonal: the values of one parameter take
turns.

`@pytest.mark.in_turn(3)` over 36 queries and 3 settings runs each query under one of the settings, and each setting
with 12 of the queries. With three parameters, every pair of values of the two larger ones still meets.
`--all-configurations` runs the product."""

from __future__ import annotations

from typing import Any

import pytest


def is_its_turn(places: list[int], every: int) -> bool:
    """Whether a combination runs by default; `places` are the positions of its values in the lists of their
    parameters."""
    return sum(places) % every == 0


def all_have_turns(sizes: list[int], every: int) -> bool:
    """Whether each value of each parameter is in a combination that runs by default: the positions of the others,
    besides the longest list, must add up to every remainder."""
    return sum(size - 1 for size in sizes) - (max(sizes) - 1) + 1 >= every


def runs_by_default(item: pytest.Item) -> bool:
    """Whether a collected test is a part of the default run."""
    if item.get_closest_marker("all_configurations"):
        return False
    mark = item.get_closest_marker("in_turn")
    if mark is None:
        return True
    sizes = [len(given.args[1]) for given in item.iter_markers("parametrize")]
    if not _has_fixtures(item) and not all_have_turns(sizes, *mark.args):
        raise pytest.UsageError(
            f"{item.nodeid}: some values of in_turn{mark.args} over {sizes} would never run by default"
        )
    return is_its_turn(_places(item), *mark.args)


def _has_fixtures(item: Any) -> bool:
    """Whether fixtures have parameters too; how many is not known here."""
    return len(item.callspec.params) > sum(len(_names(given.args[0])) for given in item.iter_markers("parametrize"))


def _places(item: Any) -> list[int]:
    """The position of each parameter's value in its list. Names that get values together are one parameter. (pytest
    counts only the parameters of fixtures: for the others its index is that of the combination.)"""
    values, places = item.callspec.params, []
    fixtures = dict(item.callspec.indices)
    for given in item.iter_markers("parametrize"):
        names, choices = _names(given.args[0]), given.args[1]
        chosen = [values[name] for name in names]
        places.append(
            next(
                place
                for place, choice in enumerate(choices)
                if all(_same(a, b) for a, b in zip(_values(choice, len(names)), chosen))
            )
        )
        for name in names:
            del fixtures[name]
    return places + list(fixtures.values())


def _names(given: Any) -> list[str]:
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def _values(choice: Any, count: int) -> list[Any]:
    if isinstance(choice, type(pytest.param())):
        return list(choice.values)
    return [choice] if count == 1 else list(choice)


def _same(value: Any, other: Any) -> bool:
    """The same object; ranges make their numbers anew."""
    return value is other or (isinstance(value, int | str) and value == other)
