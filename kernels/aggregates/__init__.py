"""Aggregate functions, one module per group. Importing this package imports them all, which fills the registry."""

import importlib
import pkgutil

from tsql.kernels.aggregates.registry import AGGREGATES

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["AGGREGATES"]
