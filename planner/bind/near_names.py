"""Names that look alike, for hints of error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """A hint with the names that look most like `name`."""
    lowered = {c.lower(): c for c in candidates}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=3, cutoff=0.5)
    if not found:
        return None
    return "did you mean " + " or ".join(f'"{lowered[f]}"' for f in found) + "?"
