"""Pattern → automaton: a table of instructions that `matcher.py` runs.

An instruction takes a row (`ROW`: the variable's condition must hold), goes two ways (`SPLIT`, the preferred one
first), tests for an end of the partition (`START`, `END`), accepts, or fails. A part of the pattern is compiled between
two continuations: where to go if it took no row, and where if it took some. So a repetition knows without a counter
whether it advanced: repeating without taking a row leads to FAIL. Bounded repetitions are unrolled, and equal parts
with equal continuations are shared."""

from __future__ import annotations

import struct

from tsql.kernels.patterns.tree import Anchor, Choice, Pattern, Repeat, Sequence, Variable
from tsql.kernels.process.quick_dataclass import dataclass

ROW, SPLIT, START, END, ACCEPT, FAIL = range(6)
MAX_INSTRUCTIONS = 100_000
"""The most instructions of an automaton: (A{100}){100} has ten thousand."""
MAX_VARIABLES = 32_000

WORDS = 8
"""32-bit words of an instruction: kind, next, other, label, bit, mark, dependent, and one that is not used."""
KIND, NEXT, OTHER, LABEL, BIT, MARK, DEPENDENT = range(7)
ALWAYS = 0
"""The bit of conditions that holds for every row."""


class TooLarge(ValueError):
    """The automaton of a pattern has too many instructions."""


@dataclass(frozen=True)
class Instruction:
    """kind: one of the above. ROW maps a row to the variable with the number `label`."""

    kind: int
    next: int = 0
    other: int = 0
    label: int = 0


class PatternProgram:
    """The automaton of a pattern. labels: the names of its variables, which instructions know by number."""

    def __init__(self, pattern: Pattern):
        self.labels = pattern.variables()
        if len(self.labels) > MAX_VARIABLES:
            raise TooLarge(f"the pattern has more than {MAX_VARIABLES:,} variables")
        self.code: list[Instruction] = []
        self._known: dict[object, int] = {}
        self._fail = self._add(Instruction(FAIL))
        accept = self._add(Instruction(ACCEPT))
        self.entry = self._compile(pattern, accept, accept)

    def _add(self, instruction: Instruction) -> int:
        found = self._known.get(instruction)
        if found is None:
            if len(self.code) >= MAX_INSTRUCTIONS:
                raise TooLarge(f"the automaton of the pattern has more than {MAX_INSTRUCTIONS:,} states")
            found = self._known[instruction] = len(self.code)
            self.code.append(instruction)
        return found

    def _split(self, first: int, second: int) -> int:
        if first == self._fail or first == second:
            return second
        return first if second == self._fail else self._add(Instruction(SPLIT, first, second))

    def _compile(self, pattern: Pattern, empty: int, moved: int) -> int:
        """The start of the code for a pattern. It continues at `empty` if the pattern took no row, at `moved` if it
        did."""
        if pattern.fewest > 0:
            empty = moved
        key = (id(pattern), empty, moved)
        if key not in self._known:
            self._known[key] = self._entry(pattern, empty, moved)
        return self._known[key]

    def _entry(self, pattern: Pattern, empty: int, moved: int) -> int:
        match pattern:
            case Variable(name):
                return self._add(Instruction(ROW, moved, label=self.labels.index(name)))
            case Anchor(at_end):
                return self._add(Instruction(END if at_end else START, empty))
            case Sequence(parts):
                for part in reversed(parts):
                    empty, moved = self._compile(part, empty, moved), self._compile(part, moved, moved)
                return empty
            case Choice(parts):
                entry = self._compile(parts[-1], empty, moved)
                for part in reversed(parts[:-1]):
                    entry = self._split(self._compile(part, empty, moved), entry)
                return entry
            case Repeat():
                return self._repeat(pattern, empty, moved)
        raise TypeError(f"no pattern: {type(pattern).__name__}")

    def _repeat(self, pattern: Repeat, empty: int, moved: int) -> int:
        part = pattern.part

        def either(more: int, leave: int) -> int:
            return self._split(leave, more) if pattern.reluctant else self._split(more, leave)

        if pattern.most is None:
            # The loop is an instruction that its own body continues at: its number is needed before it is known.
            again = len(self.code)
            self.code.append(Instruction(SPLIT))
            body = self._compile(part, self._fail, again)
            ways = (moved, body) if pattern.reluctant else (body, moved)
            self.code[again] = Instruction(SPLIT, *ways)
            entry, loop = again if empty == moved else either(body, empty), again
        else:
            entry, loop = empty, moved
            for _ in range(pattern.most - pattern.least):
                # A further repetition goes on to the one made before it, and what took rows leaves by `moved`.
                body = self._compile(part, self._fail, loop)
                entry, loop = either(body, empty), either(body, moved)
        for _ in range(pattern.least):
            entry, loop = self._compile(part, entry, loop), self._compile(part, loop, loop)
        return entry

    def marks(self, dependent: frozenset[int]) -> dict[int, int]:
        """The mark numbers of the instructions where paths meet and after which no condition depends on the match so
        far. dependent: the labels whose conditions do."""
        arrivals = [0] * len(self.code)
        arrivals[self.entry] = 1
        reached, free = self._reached(), self._free(dependent)
        for number in reached:
            for target in self._targets(number):
                arrivals[target] += 1
        marked = [n for n in reached if arrivals[n] > 1 and n in free and self.code[n].kind not in (ACCEPT, FAIL)]
        return {number: place for place, number in enumerate(marked)}

    def _targets(self, number: int) -> tuple[int, ...]:
        one = self.code[number]
        return (one.next, one.other) if one.kind == SPLIT else (one.next,) if one.kind in (ROW, START, END) else ()

    def _reached(self) -> list[int]:
        seen, stack = {self.entry}, [self.entry]
        while stack:
            for target in self._targets(stack.pop()):
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return sorted(seen)

    def _free(self, dependent: frozenset[int]) -> set[int]:
        """Instructions from which no condition on the match so far can be reached."""
        users: dict[int, list[int]] = {}
        for number in range(len(self.code)):
            for target in self._targets(number):
                users.setdefault(target, []).append(number)
        stack = [n for n, one in enumerate(self.code) if one.kind == ROW and one.label in dependent]
        bound = set(stack)
        while stack:
            for user in users.get(stack.pop(), ()):
                if user not in bound:
                    bound.add(user)
                    stack.append(user)
        return set(range(len(self.code))) - bound

    def table(self, bits: dict[int, int], dependent: dict[int, int]) -> bytes:
        """The instructions as the kernel reads them. bits: of labels the bit of their condition; dependent: of labels
        with a condition that depends on the match so far, its number."""
        marks = self.marks(frozenset(dependent))
        rows = (
            (
                one.kind,
                one.next,
                one.other,
                one.label,
                bits.get(one.label, ALWAYS),
                marks.get(number, -1),
                dependent.get(one.label, -1),
                0,
            )
            for number, one in enumerate(self.code)
        )
        return b"".join(struct.pack(f"<{WORDS}i", *row) for row in rows)
