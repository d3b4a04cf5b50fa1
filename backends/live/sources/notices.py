"""`Notices`: what a reader has to tell beside its rows. Every reader has one as `notices`; the job shows it."""

from __future__ import annotations

from collections import Counter, deque

MOST_TEXTS = 100


class Notices:
    """The last texts for people, and how many messages or rows were left out, by reason."""

    def __init__(self) -> None:
        self.texts: deque[str] = deque(maxlen=MOST_TEXTS)
        self.left_out: Counter[str] = Counter()

    def tell(self, text: str) -> None:
        """Add a text, unless it was the last one."""
        if not self.texts or self.texts[-1] != text:
            self.texts.append(text)
