"""A recording: the plans and kernels of each query of the workload. Written by `record`, read by `compare`.

The file is gzipped JSON: a line for the version, a line for each text, then a line for each query. Texts are referenced
by hash, so each is stored once. A kernel is the list of its functions, most of which many kernels share.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

FORMAT = 1
_FUNCTIONS = re.compile(r"\n(?=func )")


class BadRecording(Exception):
    """A file is no recording, or one of another version."""


@dataclass
class Entry:
    """One query or statement. `line` is where it stands in `source`; keys do without it, as lines move."""

    source: str
    config: str
    line: int
    sql: str
    plans: list[str] = field(default_factory=list)
    kernels: list[list[str]] = field(default_factory=list)
    constants: list[list[str]] = field(default_factory=list)
    message: str | None = None

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line} ({self.config})"


@dataclass
class Recording:
    """Entries, and the texts that they name by hash."""

    entries: list[Entry] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def keep(self, text: str) -> str:
        """The hash of a text."""
        name = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]
        self.texts[name] = text
        return name

    def keep_kernels(self, texts: Iterable[str]) -> list[list[str]]:
        """Kernels by the hashes of their functions, in an order that does not depend on which was made first."""
        return sorted([self.keep(function) for function in _FUNCTIONS.split(text)] for text in texts)

    def text(self, names: Iterable[str]) -> str:
        return "\n".join(self.texts[name] for name in names)

    def add(self, other: Recording) -> None:
        self.entries += other.entries
        self.texts |= other.texts

    def by_key(self) -> dict[tuple[str, str, str, int], Entry]:
        """Entries by source, configuration, SQL, and which one of the same SQL it is."""
        found: dict[tuple[str, str, str, int], Entry] = {}
        for entry in self.entries:
            number = 0
            while (key := (entry.source, entry.config, entry.sql, number)) in found:
                number += 1
            found[key] = entry
        return found

    def write(self, path: Path) -> None:
        """Write the file; equal recordings give equal bytes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            open(path, "wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            io.TextIOWrapper(packed, "ascii") as file,
        ):
            print(json.dumps({"format": FORMAT}), file=file)
            for name in sorted(self.texts):
                print(json.dumps({"text": name, "is": self.texts[name]}), file=file)
            for entry in sorted(self.entries, key=lambda e: (e.source, e.config, e.line)):
                said = {name: value for name, value in asdict(entry).items() if value not in ([], None)}
                print(json.dumps(said), file=file)

    @staticmethod
    def read(path: Path) -> Recording:
        found = Recording()
        try:
            with gzip.open(path, "rt", encoding="ascii") as file:
                if json.loads(next(file, "{}")) != {"format": FORMAT}:
                    raise BadRecording(f"{path} is of another version")
                for line in file:
                    item = json.loads(line)
                    if "text" in item:
                        found.texts[item["text"]] = item["is"]
                    else:
                        found.entries.append(Entry(**item))
        except (OSError, EOFError, ValueError, TypeError) as error:
            raise BadRecording(f"{path} cannot be read: {error}") from error
        return found
