"""Compares two recordings: which queries have other plans, other kernels or another message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff

from tests.replay.recording import Entry, Recording

SHOWN = 5
"""At most this many differences of each kind are shown in full."""

LINES = 30
"""A diff is cut after this many lines."""


@dataclass(frozen=True)
class Difference:
    """What differs at one query. `kind` is plan, kernel, constant, message, missing or new."""

    kind: str
    entry: Entry
    diff: tuple[str, ...] = ()

    def __str__(self) -> str:
        sql = " ".join(self.entry.sql.split())
        return f"{self.kind}: {self.entry.place}: {sql if len(sql) <= 100 else sql[:100] + '..'}"


def differences(a: Recording, b: Recording) -> Iterator[Difference]:
    """Every difference, in the order of `a`."""
    before, after = a.by_key(), b.by_key()
    for key, entry in before.items():
        other = after.get(key)
        if other is None:
            yield Difference("missing", entry)
            continue
        if entry.plans != other.plans:
            yield Difference("plan", entry, _diff(a.text(entry.plans), b.text(other.plans)))
        for kind in ("kernels", "constants"):
            mine, theirs = getattr(entry, kind), getattr(other, kind)
            if mine != theirs:
                gone, come = [k for k in mine if k not in theirs], [k for k in theirs if k not in mine]
                diff = _diff("\n".join(map(a.text, gone)), "\n".join(map(b.text, come)))
                yield Difference(kind.removesuffix("s"), entry, diff)
        if entry.message != other.message:
            yield Difference("message", entry, _diff(entry.message or "(no error)", other.message or "(no error)"))
    yield from (Difference("new", entry) for key, entry in after.items() if key not in before)


def _diff(a: str, b: str) -> tuple[str, ...]:
    lines = list(unified_diff(a.split("\n"), b.split("\n"), "before", "after", "", "", 2, ""))
    return (*lines[:LINES], f".. and {len(lines) - LINES} lines more") if len(lines) > LINES else tuple(lines)


def report(a: Recording, b: Recording) -> tuple[str, bool]:
    """What to print about two recordings, and whether they are the same."""
    found = list(differences(a, b))
    if not found:
        plans, kernels = (sum(len(getattr(entry, kind)) for entry in a.entries) for kind in ("plans", "kernels"))
        messages = sum(entry.message is not None for entry in a.entries)
        return f"no difference: {len(a.entries)} queries, {plans} plans, {kernels} kernels, {messages} messages", True
    lines, shown = [], Counter()
    for difference in found:
        lines.append(str(difference))
        if shown[difference.kind] < SHOWN:
            shown[difference.kind] += 1
            lines += [f"    {line}" for line in difference.diff]
    counts = Counter(difference.kind for difference in found)
    keys = len({id(difference.entry) for difference in found})
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    lines.append(f"{keys} of {len(a.entries)} queries differ: {by_kind}")
    return "\n".join(lines), False
