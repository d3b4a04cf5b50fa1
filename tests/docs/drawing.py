"""Loads the programs of docs/ that draw pictures."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def drawing(name: str) -> ModuleType:
    """A program of docs/, which is no package."""
    folder = str(ROOT / "docs")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
