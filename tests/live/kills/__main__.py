"""`python -m tests.live.kills --kills 1000`: kill jobs over every kind of target."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.live.kills.campaign import campaign
from tests.live.kills.cases import CASES
from tests.live.postgres import programs, server


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="over all targets together (default: 1000)")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, which is printed")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this kind of target (repeatable)")
    options = parser.parse_args(arguments)
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    names = options.case or [name for name in CASES if name != "postgres" or programs() is not None]
    print(f"seed {seed}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tsql-kills-")))
        running = stack.enter_context(server()) if "postgres" in names else None
        wrong = campaign(options.kills, seed, folder, lambda: running.database() if running else "", names, tell=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
