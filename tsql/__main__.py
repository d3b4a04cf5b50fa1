"""`tsql` and `python -m tsql`: runs the command and ends the process with its exit code."""

from __future__ import annotations

import gc
import os
import sys

INTERRUPTED = 130
NEW_OBJECTS = 20_000
"""Python looks for garbage after this many new objects. With its default of 700, startup would trigger it a few hundred
times without freeing anything."""


def script() -> None:
    """The command as a program. After Ctrl-C the process ends at once. It does not wait for library calls of the
    cancelled query (a sort, a read, a compilation), nor for an interrupted import."""
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
