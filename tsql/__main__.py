"""`tsql` and `python -m tsql`: runs the command and ends the process with its exit code."""

from __future__ import annotations

import gc
import os
import sys

INTERRUPTED = 130
NEW_OBJECTS = 20_000
"""So many make Python look for garbage. Of its own 700 a start makes a few hundred times as many, all of them to
stay."""


def script() -> None:
    """The command as a program. After Ctrl-C the process ends at once: what a cancelled query has left in a library
    call (a sort, a read, a compilation) is not waited for, and neither are the imports when they are what was
    interrupted."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from tsql.cli.command import main
        from tsql.cli.without_pandas import tell_pyarrow

        tell_pyarrow()
        code = main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    if code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    gc.freeze()  # Python's last search for garbage, at the end of the process, has nothing to look through
    sys.exit(code)


if __name__ == "__main__":
    script()
