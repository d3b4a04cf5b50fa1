"""Opens sources: `open_source` from a user's path, `from_description` from the data of a plan file or a Spark task.

The session calls these for files in FROM and for `read_parquet`, `read_csv`, `read_json`. The kind is found by the file
extension, or else by the first bytes of the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsql.backends.io import Source, remote
from tsql.backends.io.conform import OPTION as SCHEMA
from tsql.backends.io.conform import conformed, declared
from tsql.backends.io.descriptors import descriptor_of
from tsql.backends.io.files import compression_of, expand, kind_of, open_input, reading
from tsql.backends.io.kinds import ALIASES, KINDS, NAMED_KINDS
from tsql.backends.io.partitioned import OPTIONS as FILE_OPTIONS
from tsql.backends.io.partitioned import with_file_columns
from tsql.backends.io.pipes import PipePath, Pipes
from tsql.kernels.expr.errors import SourceError

if TYPE_CHECKING:
    from tsql.backends.io.csv.rejects import CsvRejects


def open_source(
    path_or_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    as_pipe: Callable[[str], str] | None = None,
) -> Source:
    """A source over a file, a list of files, a folder or a glob. `kind` is one of `KINDS`. The option
    `schema` names the columns to read with their types, for every kind. `as_pipe` is a session's `Pipes.path`."""
    given = [path_or_paths] if isinstance(path_or_paths, str | os.PathLike) else path_or_paths
    patterns = [os.fspath(path) for path in given]
    if not patterns or any(not isinstance(pattern, str) or not pattern for pattern in patterns):
        raise SourceError("a file name is empty" if patterns else "the list of files is empty")
    patterns = [remote.plain(pattern) for pattern in patterns]
    patterns = [as_pipe(pattern) if as_pipe is not None else Pipes().path(pattern) for pattern in patterns]
    kind = _kind(patterns, kind)
    settings = _checked(kind, options or {})
    wanted = declared(settings)
    if wanted is None:
        return _open(kind, patterns, settings)
    return conformed(lambda chosen: _open(kind, patterns, chosen), kind, settings, wanted)


def _open(kind: str, patterns: list[str], settings: dict[str, Any]) -> Source:
    about = KINDS[kind]
    source = getattr(about.load(), about.source)(patterns, settings)
    return with_file_columns(source, settings) if about.has_file_columns else source


def rejects_of(source: Any) -> CsvRejects | None:
    """The rejected rows of a source, if it keeps them."""
    while source is not None:
        found = getattr(source, "rejects", None)
        if found is not None:
            return found
        source = getattr(source, "source", None)
    return None


def portable(source: Any) -> dict[str, Any] | None:
    """The description of a source that another process can open. None for in-memory data, for a pipe (this process has
    read its bytes), and if rejected rows must be collected here."""
    if rejects_of(source) is not None or any(isinstance(path, PipePath) for path in getattr(source, "paths", ())):
        return None
    return _with_storage(source, getattr(source, "for_tasks", source.describe)())


MANY_FILES = 64
"""Of more files, a task opens those of its own splits only: thousands of workers would list a million files each."""


def description_by_split(source: Any) -> dict[str, Any] | None:
    """What a process needs to open the files of some splits, beside those. None if there are few files, or if the
    source cannot tell."""
    describe = getattr(source, "describe_some", None)
    paths = getattr(source, "paths", ())
    if describe is None or len(paths) <= MANY_FILES or any(isinstance(path, PipePath) for path in paths):
        return None
    return _with_storage(source, describe())


def _with_storage(source: Any, about: dict[str, Any] | None) -> dict[str, Any] | None:
    """A description with the credentials that reading its files takes."""
    storage = remote.storage_of(getattr(source, "paths", ()))
    return about if about is None or not storage else {**about, "storage": storage}


def from_description(description: Mapping[str, Any]) -> Source:
    """The source that `describe()` described."""
    try:
        for url, storage in (description.get("storage") or {}).items():
            remote.remember(url, storage)
        return open_source(list(description["paths"]), description["kind"], description.get("options") or {})
    except (KeyError, TypeError):
        # What it holds may be secret.
        raise SourceError("not the description of a source") from None


def _kind(patterns: list[str], kind: str | None) -> str:
    if kind is not None:
        kind = ALIASES.get(kind.lower(), kind.lower())
        if kind not in KINDS:
            raise SourceError(f"unknown kind of file {kind}", hint=f"kinds are {', '.join(NAMED_KINDS)}")
        return kind
    kinds = {_kind_of_one(pattern) for pattern in patterns}
    if len(kinds) > 1:
        raise SourceError(f"files of several kinds in one list: {', '.join(sorted(kinds))}")
    return kinds.pop()


def _kind_of_one(pattern: str) -> str:
    found = kind_of(pattern)
    if remote.is_remote(pattern):
        listed, is_folder = remote.listed(pattern, lambda name: True)
        files = list(listed)
    else:
        is_folder = os.path.isdir(pattern)
        files = [name for _, _, inside in os.walk(pattern) for name in inside] if is_folder else []
    if found is not None and not is_folder:
        return found
    if is_folder:
        names = [name for path in files if not (name := path.rsplit("/", 1)[-1]).startswith((".", "_"))]
        kinds = {kind for name in names if (kind := kind_of(name)) is not None}
        if len(kinds) == 1:
            return kinds.pop()
        raise SourceError(
            f"{pattern}: the folder holds {'files of several kinds' if kinds else 'no data files'}",
            hint="say which to read, such as 'folder/*.parquet'",
        )
    first = expand([pattern], "parquet")[0]
    return kind_of(first) or _kind_by_content(first)


def _kind_by_content(path: str) -> str:
    with reading(path, "a data file"), open_input(path, compression_of(path)) as stream:
        head = stream.read(64)
    found = next((name for name, kind in KINDS.items() if kind.starts(head)), None)
    if found is not None:
        return found
    if isinstance(path, PipePath) or descriptor_of(path) is not None:
        return "csv"
    raise SourceError(
        f"{path}: what kind of file this is cannot be told from its name or content",
        hint=f"name the kind: {', '.join(NAMED_KINDS)}",
    )


def _checked(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with lower-case names. An unknown option is an error that names the nearest."""
    known = _known_options(kind)
    checked = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered not in known:
            import difflib

            close = sorted(difflib.get_close_matches(lowered, known), key=lambda name: name[:1] != lowered[:1])
            raise SourceError(
                f"unknown option {name} for {kind} files",
                hint=f"did you mean {close[0]}?" if close else f"options are {', '.join(known) or 'none'}",
            )
        if value is None:
            raise SourceError(f"option {name} is NULL", hint="leave it out for the default")
        checked[lowered] = value
    return checked


def _known_options(kind: str) -> tuple[str, ...]:
    about = KINDS[kind]
    return (*about.load().OPTIONS, *(FILE_OPTIONS if about.has_file_columns else ()), SCHEMA)
