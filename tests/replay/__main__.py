"""`python -m tests.replay record FILE` and `python -m tests.replay compare A B`: see README.md."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.replay.compare import report
from tests.replay.record import Failed, record
from tests.replay.recording import BadRecording, Recording


def main(arguments: list[str] | None = None) -> int:
    about = "Prove that a change of the code changes no plan and no kernel."
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=about)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="run the workload and write what it was planned and compiled to")
    recorder.add_argument("file", type=Path)
    recorder.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (2)")
    recorder.add_argument("--only", default="", metavar="PATTERN", help="only parts with this in their name: ^spill")
    comparer = commands.add_parser("compare", help="tell what differs; exit code 1 if anything does")
    comparer.add_argument("a", type=Path)
    comparer.add_argument("b", type=Path)
    given = parser.parse_args(arguments)
    try:
        if given.command == "compare":
            text, same = report(Recording.read(given.a), Recording.read(given.b))
            print(text)
            return 0 if same else 1
        start = time.perf_counter()
        recording = record(given.jobs, given.only)
        recording.write(given.file)
    except (BadRecording, Failed) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    print(f"{len(recording.entries)} queries, {len(recording.texts)} texts, {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
