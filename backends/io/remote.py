"""Files elsewhere: `s3://`, `gs://`, `abfs://` and `hdfs://` by the file systems of pyarrow. `files.py` calls this for
a path with a scheme; `file://` is a path of this machine.

Credentials come from the environment, as pyarrow finds them, or are kept for a bucket in this process (`remember`:
those of a Spark session). They travel to tasks beside a source's description, and are in no text that is printed."""

from __future__ import annotations

import datetime as dt
import fnmatch
import os
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import pyarrow as pa

from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process import forks

SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/")
_MAGIC = re.compile(r"[*?\[]")
Storage = dict[str, str]
"""Options of a file system, such as `access_key`; what its keys mean is up to the scheme."""


def _s3(url: SplitResult, storage: Storage) -> Any:
    from pyarrow.fs import S3FileSystem

    given: dict[str, Any] = {name: _flag(value) for name, value in storage.items()}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in given:
        given["scheme"], _, given["endpoint_override"] = endpoint.rpartition("://")
        given["scheme"] = given["scheme"] or "https"
    return S3FileSystem(**given)


def _gs(url: SplitResult, storage: Storage) -> Any:
    from pyarrow.fs import GcsFileSystem

    given: dict[str, Any] = {name: _flag(value) for name, value in storage.items()}
    if "access_token" in given:  # pyarrow wants a time; the store refuses a token that is too old
        given["credential_token_expiration"] = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
    return GcsFileSystem(**given)


def _abfs(url: SplitResult, storage: Storage) -> Any:
    from pyarrow.fs import AzureFileSystem

    host = url.hostname or ""
    account = storage.get("account_name") or host.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
    key = storage.get("account_key") or os.environ.get("AZURE_STORAGE_KEY")
    return AzureFileSystem(account_name=account, account_key=key)


def _hdfs(url: SplitResult, storage: Storage) -> Any:
    from pyarrow.fs import HadoopFileSystem

    return HadoopFileSystem(host=url.hostname or "default", port=url.port or 0, **storage)


FILESYSTEMS: dict[str, Callable[[SplitResult, Storage], Any]] = {
    "s3": _s3, "s3a": _s3, "s3n": _s3, "gs": _gs, "gcs": _gs, "abfs": _abfs, "abfss": _abfs, "hdfs": _hdfs,
}  # fmt: skip
"""The file system of each scheme. Tests add one of their own."""

_storage: dict[tuple[str, str], Storage] = {}
_made: dict[tuple[str, str], Any] = {}
_lock = forks.lock()


def _flag(value: str) -> Any:
    return value == "true" if value in ("true", "false") else value


def scheme_of(path: str) -> str | None:
    """The scheme of a URL in small letters; None for a path."""
    match = SCHEME.match(path)
    return None if match is None else match[1].lower()


def is_remote(path: str) -> bool:
    """Whether a path is read by a file system of pyarrow's."""
    return scheme_of(path) in FILESYSTEMS


def plain(path: str, quoted: bool = True) -> str:
    """`file:///a%20b` and `file:/a b` as the path of this machine; any other path as it is. quoted: whether a URL has
    escapes, as those of Spark do and those of Iceberg do not."""
    if scheme_of(path) != "file":
        return path
    rest = path[len("file:") :]
    if rest.startswith("//"):
        host, slash, below = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise SourceError(f"{path}: a file of another machine cannot be read")
        rest = slash + below
    return unquote(rest) if quoted else rest


def _bucket(path: str) -> tuple[str, str]:
    found = urlsplit(path)
    return found.scheme.lower(), found.netloc


def remember(path: str, storage: Mapping[str, str]) -> None:
    """Keep the credentials of a bucket in this process."""
    with _lock:
        if storage and _storage.get(_bucket(path)) != dict(storage):
            _storage[_bucket(path)] = dict(storage)
            _made.pop(_bucket(path), None)


def storage_of(paths: Any) -> dict[str, Storage]:
    """The credentials of the buckets of paths, by their URLs: what another process needs to read them."""
    found = {f"{scheme}://{host}/" for scheme, host in map(_bucket, filter(is_remote, paths))}
    return {url: _storage[_bucket(url)] for url in sorted(found) if _bucket(url) in _storage}


def redacted(text: str) -> str:
    """A text of another library without the credentials that are known here, and without those in a URL."""
    for storage in list(_storage.values()):
        for value in storage.values():
            text = text.replace(value, "***") if len(value) > 5 else text
    return re.sub(r"(?<=://)[^/@\s]+@", "***@", text)


def filesystem(path: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    url = urlsplit(path.replace("?", "%3F").replace("#", "%23"))
    key = _bucket(path)
    if "@" in url.netloc and key[0] not in ("abfs", "abfss"):
        raise SourceError(f"{redacted(path)}: credentials in a URL are not taken", hint="put them into the environment")
    try:
        with _lock:
            if key not in _made:
                _made[key] = FILESYSTEMS[key[0]](url, _storage.get(key, {}))
            made = _made[key]
    except (ImportError, OSError, TypeError, ValueError, pa.ArrowException) as error:
        raise SourceError(f"{redacted(path)}: {key[0]}:// cannot be read here: {_line(error)}") from None
    inside = url.path.replace("%3F", "?").replace("%23", "#")
    if key[0] == "hdfs":
        return made, inside
    return made, (url.username or url.netloc if key[0] in ("abfs", "abfss") else url.netloc) + inside


def _line(error: BaseException) -> str:
    return redacted((str(error).splitlines() or [type(error).__name__])[0])


@contextmanager
def _asking(path: str) -> Any:
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"{redacted(path)}: no such file") from None
    except PermissionError:
        raise SourceError(f"{redacted(path)}: permission denied") from None
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{redacted(path)}: cannot be reached: {_line(error)}") from None


def open_file(path: str) -> pa.NativeFile:
    """A file for random access."""
    system, inside = filesystem(path)
    with _asking(path):
        return system.open_input_file(inside)


def open_stream(path: str) -> pa.NativeFile:
    """The bytes of a file, from first to last. What is not asked for is not fetched whole."""
    system, inside = filesystem(path)
    with _asking(path):
        return system.open_input_stream(inside, compression=None)


def size_of(path: str) -> int | None:
    """The bytes of a file; None if there is none."""
    from pyarrow.fs import FileType

    system, inside = filesystem(path)
    with _asking(path):
        found = system.get_file_info(inside)
    return int(found.size) if found.type == FileType.File else None


def changed_at(path: str) -> float:
    """When a file was changed, in seconds since 1970."""
    system, inside = filesystem(path)
    with _asking(path):
        return float((system.get_file_info(inside).mtime_ns or 0) / 1e9)


def listed(pattern: str, keeps: Callable[[str], bool]) -> tuple[dict[str, int], bool]:
    """The files that a URL names, with their sizes: itself, those of a folder that `keeps` wants, or those that match a
    pattern; and whether it is a folder."""
    from pyarrow.fs import FileSelector, FileType

    system, inside = filesystem(pattern)
    head = pattern[: len(pattern) - len(inside)] if pattern.endswith(inside) else f"{_bucket(pattern)[0]}://"
    with _asking(pattern):
        found = system.get_file_info(inside.rstrip("/"))
        if found.type == FileType.File:
            return {pattern: int(found.size)}, False
        if found.type == FileType.Directory:
            inside_folder = inside.rstrip("/")
            below = system.get_file_info(FileSelector(inside_folder, recursive=True))
            files = [one for one in below if one.type == FileType.File and keeps(one.path[len(inside_folder) :])]
            return _sized(head, files), True
        if not _MAGIC.search(inside):
            return {}, False
        parts = inside.split("/")
        fixed = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        base = "/".join(parts[:fixed])
        below = system.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
    wanted = [part for part in parts[fixed:] if part]
    matching = [
        one
        for one in below
        if one.type == FileType.File and _matches(one.path[len(base) :].strip("/").split("/"), wanted)
    ]
    return _sized(head, matching), False


def _sized(head: str, files: list[Any]) -> dict[str, int]:
    return {head + one.path: int(one.size) for one in sorted(files, key=lambda one: str(one.path))}


def _matches(names: list[str], patterns: list[str]) -> bool:
    """As `glob`: `**` is any number of folders, and a star does not match a leading dot."""
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_matches(names[skip:], patterns[1:]) for skip in range(len(names) + 1))
    if not names or (names[0].startswith(".") and not patterns[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])


def names_in(folder: str) -> list[str]:
    """The names of the files in a folder, here or elsewhere; none if it is not there."""
    if not is_remote(folder):
        return os.listdir(folder) if os.path.isdir(folder) else []
    from pyarrow.fs import FileSelector

    system, inside = filesystem(folder)
    with _asking(folder):
        return [one.base_name for one in system.get_file_info(FileSelector(inside, allow_not_found=True))]


def delta_options(path: str) -> dict[str, str] | None:
    """The credentials of a bucket, in the words of the package `deltalake`."""
    words = {
        "access_key": "AWS_ACCESS_KEY_ID", "secret_key": "AWS_SECRET_ACCESS_KEY", "session_token": "AWS_SESSION_TOKEN",
        "endpoint_override": "AWS_ENDPOINT_URL", "region": "AWS_REGION", "account_name": "AZURE_STORAGE_ACCOUNT_NAME",
        "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    }  # fmt: skip
    known = _storage.get(_bucket(path), {}) if is_remote(path) else {}
    return {words[name]: value for name, value in known.items() if name in words} or None


def iceberg_options(path: str) -> dict[str, str]:
    """The credentials of a bucket, in the words of the package `pyiceberg`."""
    words = {
        "access_key": "s3.access-key-id", "secret_key": "s3.secret-access-key", "session_token": "s3.session-token",
        "endpoint_override": "s3.endpoint", "region": "s3.region", "account_name": "adls.account-name",
        "account_key": "adls.account-key",
    }  # fmt: skip
    known = _storage.get(_bucket(path), {}) if is_remote(path) else {}
    return {words[name]: value for name, value in known.items() if name in words}
