"""Which combinations of parameters run by default."""

from __future__ import annotations

import itertools

import pytest

from tests.turns import all_have_turns, is_its_turn, runs_by_default


@pytest.mark.parametrize("sizes", [(36, 3), (6, 13, 3), (3, 6, 13), (5, 2, 2)])
@pytest.mark.parametrize("every", [2, 3])
def test_every_value_has_its_turns(sizes: tuple[int, ...], every: int) -> None:
    """About one combination in so many; all values of each parameter, and all pairs if there are three parameters of so
    many values."""
    product = list(itertools.product(*map(range, sizes)))
    taken = [places for places in product if is_its_turn(list(places), every)]
    assert abs(len(taken) - len(product) / every) <= 1
    for place, size in enumerate(sizes):
        assert {places[place] for places in taken} == set(range(size))
    if len(sizes) == 3 and min(sizes) >= every:
        for i, j in itertools.combinations(range(3), 2):
            assert {(places[i], places[j]) for places in taken} == set(
                itertools.product(range(sizes[i]), range(sizes[j]))
            )


@pytest.mark.parametrize("sizes", [(7,), (2, 2), (105, 3), (11, 2, 2), (2, 9, 4)])
@pytest.mark.parametrize("every", range(1, 9))
def test_values_without_a_turn_are_told(sizes: tuple[int, ...], every: int) -> None:
    taken = [places for places in itertools.product(*map(range, sizes)) if is_its_turn(list(places), every)]
    assert all_have_turns(list(sizes), every) == all(
        {places[place] for places in taken} == set(range(size)) for place, size in enumerate(sizes)
    )


@pytest.mark.parametrize(("name", "length"), [("a", 1), ("bb", 2), ("ccc", 3), ("dddd", 4)])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.in_turn(2)
def test_values_given_together_are_one_parameter(
    name: str, length: int, number: int, request: pytest.FixtureRequest
) -> None:
    assert len(name) == length
    assert runs_by_default(request.node) == ((length - 1 + number) % 2 == 0)


def test_the_default_run_has_half_of_them(request: pytest.FixtureRequest) -> None:
    here = [
        item
        for item in request.session.items
        if item.path == request.path and item.originalname == "test_values_given_together_are_one_parameter"
    ]
    chosen = [item for item in here if runs_by_default(item)]
    assert chosen == here if not request.config.getoption("--all-configurations") else len(chosen) <= len(here)
