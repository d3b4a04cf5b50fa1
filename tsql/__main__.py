"""`tsql` and `python -m tsql`: runs the command and ends the process with its exit code."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def script() -> None:
    """The command as a program. After Ctrl-C the process ends at once: what a cancelled query has left in a library
    call (a sort, a read, a compilation) is not waited for, and neither are the imports when they are what was
    interrupted."""
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
    sys.exit(code)


if __name__ == "__main__":
    script()
