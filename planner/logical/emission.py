"""`Emission`: what EMIT behind a query asks for: when rows of the result leave, and whether they may be taken back. It
never changes what the result is. Bounded input has no other moment than its end, so only live jobs look at it."""

from __future__ import annotations

from tsql.kernels.process.quick_dataclass import dataclass

FINAL, CHANGES = "final", "changes"

AT_PUNCTUATION, AT_WATERMARK, AT_ONCE = "punctuation", "watermark", "now"
"""How far ahead a result is shown: rows that nothing can change, rows that only late ones can change, or all rows that
the input so far gives."""


@dataclass(frozen=True)
class Emission:
    """mode: `final` rows, or `changes` of the result. every_us: rows leave at most so often. before_watermark: what is
    known leaves before it is complete. changes_after_watermark: a row leaves once the watermark has passed it, and late
    rows change it. within_us: a row of the result leaves at most this long after the row that completes it has come, as
    far as batches can be cut for it."""

    mode: str = FINAL
    every_us: int | None = None
    before_watermark: bool = False
    changes_after_watermark: bool = False
    within_us: int | None = None

    @property
    def horizon(self) -> str:
        """How far ahead the result is shown."""
        if self.mode == CHANGES or self.before_watermark:
            return AT_ONCE
        return AT_WATERMARK if self.changes_after_watermark else AT_PUNCTUATION

    @property
    def has_changes(self) -> bool:
        """Whether rows that have left may be taken back."""
        return self.horizon != AT_PUNCTUATION

    def text(self) -> str:
        """The line of a plan file, without its first word."""
        words = [self.mode]
        words += [f"every_us={self.every_us}"] if self.every_us is not None else []
        words += ["before_watermark=yes"] if self.before_watermark else []
        words += ["changes_after_watermark=yes"] if self.changes_after_watermark else []
        words += [f"within_us={self.within_us}"] if self.within_us is not None else []
        return " ".join(words)
