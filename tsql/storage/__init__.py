"""Databases on disk: a folder with a journal of commits and immutable files of columns. docs/storage.md is the
format."""

from tsql.storage.database import Database

__all__ = ["Database"]
