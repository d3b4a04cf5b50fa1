"""Checks the path of a database before it is opened. A path that cannot be one gets a single message with the
reason."""

from __future__ import annotations

import os
from pathlib import Path

from tsql.kernels.expr.errors import StorageError


def check_place(path: Path) -> None:
    """Raise StorageError for a path that the file system refuses, and for one whose parent folder does not exist.
    Opening a database creates its own folder but not those above it, because these are more often misspelt than
    missing."""
    try:
        os.stat(path)
    except FileNotFoundError:
        if not os.path.isdir(path.parent):
            raise StorageError(
                f"there is no folder {path.parent} for the database {path}",
                hint="make that folder first, or look at the path",
            ) from None
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror or error}") from error
