"""Row patterns without a kernel: their text reads back, and their automaton, run step by step in Python, finds what the
reference does."""

from __future__ import annotations

import random

import pytest

from tests.temporal.reference import pattern as reference
from tsql.kernels.patterns.program import (
    ACCEPT,
    END,
    FAIL,
    MAX_INSTRUCTIONS,
    ROW,
    SPLIT,
    START,
    WORDS,
    PatternProgram,
    TooLarge,
)
from tsql.kernels.patterns.tree import Anchor, Choice, Pattern, Repeat, Sequence, Variable, read_pattern

QUANTIFIERS = ((0, None), (1, None), (0, 1), (2, 2), (1, 2), (0, 3), (2, None))


def random_pattern(rng: random.Random, leaves: int) -> Pattern:
    """A pattern of A, B, C, anchors and empty parts, in the form in which text gives it."""
    if rng.random() < 0.3 and leaves > 0:
        return Repeat(_part(rng, leaves), *rng.choice(QUANTIFIERS), reluctant=rng.random() < 0.4)
    return _part(rng, leaves)


def _part(rng: random.Random, leaves: int) -> Pattern:
    if leaves <= 1:
        return rng.choice((*map(Variable, "AABBCC"), Sequence(())))
    parts = []
    while leaves > 0:
        size = rng.randint(1, leaves)
        parts.append(random_pattern(rng, size if size < leaves or parts else leaves - 1))
        leaves -= size
    if rng.random() < 0.1:
        parts.insert(rng.choice((0, len(parts))), Anchor(rng.random() < 0.5))
    if len(parts) == 1:
        return parts[0]
    if rng.random() < 0.4:
        return Choice(tuple(p for part in parts for p in (part.parts if isinstance(part, Choice) else (part,))))
    flat = tuple(p for part in parts for p in (part.parts if isinstance(part, Sequence) and part.parts else (part,)))
    return Sequence(flat)


def in_reference(pattern: Pattern) -> reference.Pattern:
    match pattern:
        case Variable(name):
            return reference.Variable(name)
        case Anchor(at_end):
            return reference.Anchor(at_end)
        case Sequence(parts):
            return reference.Sequence(tuple(map(in_reference, parts)))
        case Choice(parts):
            return reference.Alternatives(tuple(map(in_reference, parts)))
        case Repeat(part, least, most, reluctant):
            return reference.Repeat(in_reference(part), least, most, not reluctant)
    raise AssertionError(pattern)


def preferred(
    program: PatternProgram, text: str, start: int, marks: dict[int, int], failed: set[tuple[int, int]]
) -> str | None:
    """What `matcher.py` does: the labels of the first way that accepts; `failed` are the marks, which later starts use
    too."""
    stack = [(program.entry, start, "")]
    while stack:
        at, row, labels = stack.pop()
        one = program.code[at]
        if at in marks:
            if (at, row) in failed:
                continue
            failed.add((at, row))
        match one.kind:
            case k if k == ACCEPT:
                failed.difference_update({(state, place) for state, place in failed if place <= row})
                return labels
            case k if k == ROW and row < len(text) and text[row] == program.labels[one.label]:
                stack.append((one.next, row + 1, labels + text[row]))
            case k if k == SPLIT:
                stack += [(one.other, row, labels), (one.next, row, labels)]
            case k if (k == START and row == 0) or (k == END and row == len(text)):
                stack.append((one.next, row, labels))
    return None


def test_text() -> None:
    for seed in range(500):
        pattern = random_pattern(random.Random(seed), seed % 6)
        assert read_pattern(pattern.text()) == pattern, f"seed {seed}: {pattern}"
    odd = Sequence((Variable("a b"), Repeat(Variable('"'), 2, 2), Variable("ü")))
    assert odd.text() == '"a b" """"{2} ü' and read_pattern(odd.text()) == odd


@pytest.mark.parametrize(
    "bad", ["", "A |", "(A", "A)", "A{}", "A{2,1}", "A{0}", "A ; B", "*", "(" * 201 + "A" + ")" * 201]
)
def test_bad_text(bad: str) -> None:
    with pytest.raises(ValueError, match="pattern|quantifier"):
        read_pattern(bad)


def test_automaton_is_the_reference() -> None:
    """Every start in order, with marks kept from one to the next."""
    matches = 0
    for seed in range(1_500):
        rng = random.Random(seed)
        pattern = random_pattern(rng, rng.randint(1, 6))
        text = "".join(rng.choice("ABC") for _ in range(rng.randint(0, 7)))
        program, tree = PatternProgram(pattern), in_reference(pattern)
        marks = program.marks(frozenset())
        failed: set[tuple[int, int]] = set()
        for start in range(len(text)):
            place = reference.Place(start, len(text))
            found = next(
                tree.routes(
                    place, (), lambda labels, start=start, text=text: text[start + len(labels) - 1] == labels[-1]
                ),
                None,
            )
            expected = None if found is None else "".join(found)
            assert preferred(program, text, start, marks, failed) == expected, (
                f"seed {seed}: {pattern} over {text!r} from {start}"
            )
            matches += bool(expected)
    assert matches > 500


def test_marks_bound_the_search() -> None:
    """Between two marks there is one way only, so that each (instruction, row) is run once for each mark at most."""
    program = PatternProgram(read_pattern("(A | B)* (A* B*)* C"))
    text, failed = "AB" * 200, set()
    marks = program.marks(frozenset())
    for start in range(len(text)):
        assert preferred(program, text, start, marks, failed) is None
    assert len(failed) <= len(marks) * (len(text) + 1)


def test_conditions_of_the_match_have_no_marks_before_them() -> None:
    """A condition on B depends on the match so far: only what comes behind every B may be marked."""
    program = PatternProgram(read_pattern("(A | B)* C+ D"))
    assert program.labels == ("A", "B", "C", "D")
    free, bound = program.marks(frozenset()), program.marks(frozenset({1}))
    assert set(bound) < set(free)
    assert {program.labels[program.code[n].label] for n in bound if program.code[n].kind == ROW} <= {"C", "D"}


def test_sizes() -> None:
    assert len(PatternProgram(read_pattern("A B+ C")).code) == 6
    assert len(PatternProgram(read_pattern("A{1000}")).table({}, {})) == (1000 + 2) * WORDS * 4
    assert len([one for one in PatternProgram(read_pattern("((A?)*)*")).code if one.kind == ROW]) == 1
    assert PatternProgram(read_pattern("()*")).code[PatternProgram(read_pattern("()*")).entry].kind in (ACCEPT, SPLIT)
    assert PatternProgram(read_pattern("A")).code[0].kind == FAIL
    with pytest.raises(TooLarge, match="100,000 states"):
        PatternProgram(read_pattern(f"(A{{1000}}){{{MAX_INSTRUCTIONS // 1000 + 1}}}"))
