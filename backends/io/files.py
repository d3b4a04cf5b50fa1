"""Paths: expands what a user names (a file, a list, a folder, a glob) to the list of files to read, and finds hive
partitions in them.

All file sources call `expand`. `reading` is the one place where errors of pyarrow and of the operating system become a
`SourceError` that names the path. `remote.py` reads what has the scheme of a store; no other URL is read."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from tsql.backends.io import remote
from tsql.backends.io.kinds import KINDS
from tsql.backends.io.pipes import PipePath, PipeReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import BIGINT, DATE, TIMESTAMP, VARCHAR, Type
from tsql.kernels.process.quick_dataclass import dataclass

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_MAGIC_BYTES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_MAGIC = re.compile(r"[*?\[]")


@contextmanager
def reading(path: str, expected: str) -> Iterator[None]:
    """Run a block that reads `path`. Any failure inside becomes one SourceError that says what was expected."""
    try:
        yield
    except SourceError:
        raise
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file (expected {expected})") from None
    except IsADirectoryError:
        raise SourceError(f"{path}: is a folder, not {expected}") from None
    except PermissionError:
        raise SourceError(f"{path}: permission denied") from None
    except MemoryError:
        raise SourceError(f"{path}: damaged or too large to read as {expected}: not enough memory") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, EOFError) as error:
        reason = remote.redacted(_first_line(error))
        raise SourceError(f"{path}: cannot be read as {expected}: {reason}") from (
            None if remote.is_remote(path) else error
        )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def expand(patterns: Iterable[str], kind: str, sizes: dict[str, int] | None = None) -> tuple[str, ...]:
    """The files that `patterns` name, globs and folders in sorted order (as DuckDB reads them). Never empty. `sizes`
    gets those of files elsewhere, which are listed with them."""
    files: list[str] = []
    for pattern in patterns:
        if remote.is_remote(pattern):
            found = _expand_remote(pattern, kind)
            files += found
            if sizes is not None:
                sizes.update(found)
        else:
            files += _expand_one(pattern, kind)
    return tuple(files)


def _expand_one(pattern: str, kind: str) -> list[str]:
    if _SCHEME.match(pattern):
        raise SourceError(
            f"{remote.redacted(pattern)}: only local files are read, and those of a store, not other URLs",
            hint="download the file first; stores are s3://, gs://, abfs:// and hdfs://",
        )
    if "\0" in pattern:
        raise SourceError("a file name holds a NUL character")
    if os.path.isdir(pattern):
        if not KINDS[kind].endings:
            raise SourceError(f"{pattern}: is a folder, not a file", hint=f"read_{kind} takes names: '{pattern}/*'")
        if os.path.isdir(os.path.join(pattern, "_delta_log")):
            # The folder also has the files of older versions.
            raise SourceError(f"{pattern}: this folder is a Delta table", hint=f"FROM delta_scan('{pattern}')")
        found = _files_below(pattern, kind)
        if not found:
            raise SourceError(f"{pattern}: the folder holds no {kind} files ({', '.join(KINDS[kind].endings)})")
        return found
    if os.path.exists(pattern) or not _MAGIC.search(pattern):
        if not os.path.exists(pattern):
            raise SourceError(f"{pattern}: no such file")
        return [pattern]
    found = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not found:
        raise SourceError(f"{pattern}: no file matches this pattern")
    return found


def _expand_remote(pattern: str, kind: str) -> dict[str, int]:
    if "\0" in pattern:
        raise SourceError("a file name holds a NUL character")
    found, is_folder = remote.listed(pattern, lambda name: _is_data(name, kind))
    if is_folder and not KINDS[kind].endings:
        raise SourceError(f"{pattern}: is a folder, not a file", hint=f"read_{kind} takes names: '{pattern}/*'")
    if not found and is_folder:
        raise SourceError(f"{pattern}: the folder holds no {kind} files ({', '.join(KINDS[kind].endings)})")
    if not found:
        reason = "no file matches this pattern" if _MAGIC.search(pattern) else "no such file"
        raise SourceError(f"{pattern}: {reason}")
    return found


def _is_data(name: str, kind: str) -> bool:
    """Whether a path below a folder is a data file, as `_files_below` finds them."""
    *folders, last = name.strip("/").split("/")
    hidden = any(one.startswith(".") or (one.startswith("_") and "=" not in one) for one in folders)
    return not hidden and not last.startswith((".", "_")) and kind_of(last) == kind


def _files_below(folder: str, kind: str) -> list[str]:
    """Data files of `kind` in a folder and its subfolders. Names that start with `_` or `.` are metadata of writers and
    skipped, unless they are partitions (`_key=1`)."""
    found = []
    for base, folders, names in os.walk(folder):
        folders[:] = [
            name for name in folders if not name.startswith(".") and (not name.startswith("_") or "=" in name)
        ]
        for name in names:
            if not name.startswith((".", "_")) and kind_of(name) == kind:
                found.append(os.path.join(base, name))
    return sorted(found)


def kind_of(path: str) -> str | None:
    """The kind of source that a file name's extension suggests, ignoring .gz and .zst."""
    stem = path.lower()
    for ending in COMPRESSIONS:
        stem = stem.removesuffix(ending)
    return next((name for name, kind in KINDS.items() if stem.endswith(kind.endings)), None)


def compression_of(path: str) -> str | None:
    """The codec that a file name's extension suggests. A pipe has no extension, so its first bytes are checked."""
    if isinstance(path, PipePath):
        head = PipeReader(path.pipe).read(4)
        return next((codec for magic, codec in _MAGIC_BYTES.items() if head.startswith(magic)), None)
    return next((codec for ending, codec in COMPRESSIONS.items() if path.lower().endswith(ending)), None)


def open_input(path: str, compression: str | None = None) -> pa.NativeFile:
    """A stream of the file's bytes, decompressed."""
    if isinstance(path, PipePath) and not path.pipe.ended:
        raw = pa.PythonFile(PipeReader(path.pipe), "r")
    elif remote.is_remote(path):
        raw = remote.open_stream(path)
    else:
        raw = pa.OSFile(stored_path(path), "rb")
    codec = compression_of(path) if compression in (None, "auto") else None if compression == "none" else compression
    return raw if codec is None else pa.CompressedInputStream(raw, codec)


def open_stored(path: str) -> pa.NativeFile:
    """A file for random access, here or elsewhere."""
    return remote.open_file(path) if remote.is_remote(path) else pa.OSFile(stored_path(path), "rb")


def stored_path(path: str) -> str:
    """The path of a file's bytes, for readers that need random access. A pipe is read to its end first."""
    return path.pipe.stored_path() if isinstance(path, PipePath) else path


def check_whole(path: str, stream: pa.NativeFile) -> None:
    """Check at the end of a file that it is still as long as when it was opened: otherwise rows are missing, and the
    last one may be cut. (A truncated compressed stream is an error by itself.)"""
    if isinstance(stream, pa.OSFile) and stream.tell() < stream.size():
        raise SourceError(f"{path}: the file became shorter while it was read")


def total_bytes(paths: Iterable[str]) -> int:
    """The stored sizes of files. A missing file counts 0 (reading it will report it)."""
    return sum(map(_bytes, paths))


def _bytes(path: str) -> int:
    if isinstance(path, PipePath):
        return path.pipe.bytes
    try:
        return stored_bytes(path)
    except FileNotFoundError:
        return 0


def stored_bytes(path: str) -> int:
    """The size of a file. All of a pipe is awaited."""
    found = remote.size_of(path) if remote.is_remote(path) else os.path.getsize(stored_path(path))
    if found is None:
        raise FileNotFoundError(path)
    return found


def changed_us(path: str) -> int:
    """When a file was changed, in whole seconds, as in DuckDB."""
    found = remote.changed_at(path) if remote.is_remote(path) else os.stat(path).st_mtime
    return int(found) * 1_000_000


_PARTITION = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
_INTEGER = re.compile(r"^(0|-?[1-9][0-9]*)$")


def folder_name(key: str, value: str | None) -> str:
    """The folder of a partition, `key=value`, as Hive and DuckDB name it. Special characters are written as %XX, and so
    is the first character of a text that would be read as NULL: `_NO_PARTITION` (by all readers) and NULL (by readers
    that take the other values for numbers or dates). The leading dot of a key is escaped too: it would hide the
    folder."""
    if value is None:
        shown = _NO_PARTITION
    else:
        shown = _escaped(value, is_special=value == _NO_PARTITION or value.upper() == "NULL")
    return f"{_escaped(key, is_special=key.startswith('.'))}={shown}"


def _escaped(text: str, is_special: bool) -> str:
    escaped = [c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in c.encode()) for c in text]
    return "".join([f"%{ord(text[0]):02X}", *escaped[1:]] if is_special else escaped)


def _unescaped(text: str) -> str:
    """The text that a folder name stands for; the name itself if its %XX are not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


@dataclass(frozen=True)
class Partitions:
    """Columns from folder names (`key=value`): their types, and each file's values in stored form."""

    types: dict[str, Type]
    values: dict[str, dict[str, object]]

    def __bool__(self) -> bool:
        return bool(self.types)


NO_PARTITIONS = Partitions({}, {})


def partitions_of(paths: tuple[str, ...], autocast: bool = True) -> Partitions:
    """The hive partitions of `paths`, by name. There are some only if every path has the same keys. Types are BIGINT,
    DATE or TIMESTAMP if all values parse as such, else VARCHAR."""
    found = {path: _keys_of(path) for path in paths}
    keys = sorted(next(iter(found.values()), {}))
    if not keys or any(sorted(pairs) != keys for pairs in found.values()):
        return NO_PARTITIONS
    types: dict[str, Type] = {}
    values: dict[str, dict[str, object]] = {path: {} for path in paths}
    for key in keys:
        texts = {path: pairs[key] for path, pairs in found.items()}
        types[key], read = _typed(set(texts.values()), autocast)
        for path, text in texts.items():
            values[path][key] = read[text]
    return Partitions(types, values)


def _keys_of(path: str) -> dict[str, str]:
    """The keys in a path with their values as they are written."""
    pairs: dict[str, str] = {}
    for part in Path(path).parts[:-1]:
        match = _PARTITION.fullmatch(part)
        if match:
            try:
                part.encode("utf-8")
            except UnicodeEncodeError:
                raise SourceError(
                    f"{path!r}: the name of a folder is not UTF-8",
                    hint="hive_partitioning => false reads no columns from names",
                ) from None
            pairs[_unescaped(match[1])] = match[2]
    return pairs


def _typed(written: set[str], autocast: bool) -> tuple[Type, dict[str, object]]:
    """The type of a partition, and the stored values of the written ones. NULL in any spelling is NULL among numbers
    and dates, and a text among texts, as in DuckDB. Our writer never writes a text like that."""
    from tsql.backends.io.text import parse_date, parse_timestamp

    texts = {one: _unescaped(one) for one in written if one != _NO_PARTITION}
    present = [one for one in texts if one.upper() != "NULL"]
    candidates = (
        ((BIGINT, _parse_bigint), (DATE, parse_date), (TIMESTAMP, parse_timestamp)) if autocast and present else ()
    )
    for kind, parse in candidates:
        read: dict[str, object] = {one: parse(texts[one]) for one in present}
        if None not in read.values():
            return kind, dict.fromkeys(written) | read
    return VARCHAR, dict.fromkeys(written) | texts


def _parse_bigint(text: str) -> int | None:
    if not _INTEGER.match(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
