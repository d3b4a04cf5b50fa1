"""Of a test over a product of parameters, the default run takes every n-th diagonal: the values of one parameter take turns.

`@pytest.mark.in_turn(3)` over 36 queries and 3 settings runs each query under one of the settings, and each setting with 12 of the
queries; over three parameters every pair of values of the two larger ones still meets. `--all-configurations` runs the product.
"""

from __future__ import annotations

from typing import Any

import pytest


def is_its_turn(places: list[int], every: int) -> bool:
    """Whether the combination of the values at these places of their parameters' lists is one that runs by default."""
    return sum(places) % every == 0


def runs_by_default(item: pytest.Item) -> bool:
    """Whether a collected test is a part of the default run."""
    if item.get_closest_marker("all_configurations"):
        return False
    mark = item.get_closest_marker("in_turn")
    return mark is None or is_its_turn(_places(item), *mark.args)


def _places(item: Any) -> list[int]:
    """The place of each parameter's value in its list. Names that were given values together are one parameter. (pytest counts
    the parameters of fixtures only: for the others its index is that of the combination.)"""
    values, places = item.callspec.params, []
    fixtures = dict(item.callspec.indices)
    for given in item.iter_markers("parametrize"):
        names, choices = given.args
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        chosen = [values[name] for name in names]
        places.append(next(place for place, choice in enumerate(choices) if all(_same(a, b) for a, b in zip(_values(choice, len(names)), chosen))))
        for name in names:
            del fixtures[name]
    return places + list(fixtures.values())


def _values(choice: Any, count: int) -> list[Any]:
    if isinstance(choice, type(pytest.param())):
        return list(choice.values)
    return [choice] if count == 1 else list(choice)


def _same(value: Any, other: Any) -> bool:
    """The same object; ranges make their numbers anew."""
    return value is other or (isinstance(value, int | str) and value == other)
