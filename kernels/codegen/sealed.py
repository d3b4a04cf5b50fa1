"""Bytes with a tag that only this user's key can make; the compile cache stores its entries this way.

The tag covers the bytes, what they are and their name: an entry that was changed, cut, or copied to another name is
rejected. The key is a file in the cache folder that only the user can read.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat

KEY_FILE = ".key"
KEY_BYTES, TAG_BYTES = 32, 32


def seal(key: bytes, label: tuple[str, ...], content: bytes) -> bytes:
    """The content with its tag in front."""
    return _tag(key, label, content) + content


def unseal(key: bytes, label: tuple[str, ...], data: bytes) -> bytes | None:
    """The content, if it was sealed with this key under this label."""
    content = data[TAG_BYTES:]
    return content if hmac.compare_digest(_tag(key, label, content), data[:TAG_BYTES]) else None


def _tag(key: bytes, label: tuple[str, ...], content: bytes) -> bytes:
    # Each part is preceded by its length, so no two labels give the same bytes.
    parts = [part.encode() for part in label]
    head = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hmac.digest(key, len(parts).to_bytes(8, "little") + head + content, "sha256")


def key_of(folder: int) -> bytes:
    """The key of an open private folder. A key that is damaged, or that others could have read or written, is replaced;
    content sealed with it is then rejected. Raises OSError if there is none and none can be written."""
    try:
        return _read_key(folder)
    except FileNotFoundError:
        return _make_key(folder, replace=False)
    except (OSError, ValueError):
        return _make_key(folder, replace=True)


def _read_key(folder: int) -> bytes:
    descriptor = os.open(KEY_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode) or known.st_uid != os.geteuid() or known.st_mode & 0o077:
            raise ValueError("not a key of this user alone")
        found = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(found) != KEY_BYTES:
        raise ValueError("not a whole key")
    return found


def _make_key(folder: int, replace: bool) -> bytes:
    """Write a key under a temporary name, then give it its own, so a reader always finds a whole key. If several
    processes make the first key of a folder at the same time, all use that of the quickest."""
    partial = f"{KEY_FILE}.{os.urandom(8).hex()}"
    descriptor = os.open(
        partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    try:
        try:
            os.write(descriptor, os.urandom(KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not replace:
            try:
                os.link(partial, KEY_FILE, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                pass
            except OSError:  # a file system without hard links
                replace = True
        if replace:
            os.replace(partial, KEY_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=folder)
    try:
        return _read_key(folder)
    except ValueError as error:
        raise OSError(str(error)) from error
