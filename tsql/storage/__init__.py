"""Databases on disk: a folder with a journal of commits and immutable column files. docs/storage.md defines the
format."""

from tsql.storage.database import Database

__all__ = ["Database"]
