"""Runs cases in its own process and reports each as a line of JSON; `campaign` reads the lines."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random
from typing import Any

from tests.robustness.mutations.kind import Finding


def main(name: str, seed: int, first: int, count: int) -> None:
    # Output of libraries must not mix with the lines.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from tests.robustness.mutations.kinds import KINDS

    def tell(**what: Any) -> None:
        out.write(json.dumps(what) + "\n")

    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        kind = KINDS[name](Path(folder))
        for number in range(first, first + count):
            case = kind.case(Random(f"{name}/{seed}/{number}"))
            tell(starts=number)
            try:
                tell(ends=number, outcome=kind.run(case))
            except Finding as finding:
                trace = "".join(traceback.format_exception(finding.__cause__)[-4:]) if finding.__cause__ else ""
                tell(ends=number, finding=str(finding), case=kind.show(case), trace=trace)
        kind.close()
    tell(done=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
