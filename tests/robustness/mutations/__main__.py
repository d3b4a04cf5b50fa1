"""The command: `python -m tests.robustness.mutations --kind sql --seed 1 --cases 10000`, or `--minutes 60` for all
kinds."""

from __future__ import annotations

import argparse
import sys
import time

from tests.robustness.mutations.campaign import run
from tests.robustness.mutations.kinds import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.robustness.mutations", description="Mutated input of every kind."
    )
    parser.add_argument(
        "--kind", choices=sorted(KINDS), action="append", help="one kind of input; may be given again (default: all)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1000, help="cases of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument(
        "--minutes", type=float, help="take turns between the kinds for so long; --cases is then the size of a turn"
    )
    options = parser.parse_args()
    kinds, found, first = options.kind or sorted(KINDS), 0, options.first
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    while True:
        for name in kinds:
            report = run(name, options.seed, options.cases, first=first, until=until)
            for finding in report.findings:
                print(finding, flush=True)
            print(report, flush=True)
            found += len(report.findings)
        first += options.cases
        if until is None or time.monotonic() > until:
            return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
