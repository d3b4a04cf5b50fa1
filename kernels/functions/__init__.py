"""Scalar functions, one module per group. Importing this package imports them all, which fills the registry."""

import importlib
import pkgutil

from tsql.kernels.functions.registry import SCALARS

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = ["SCALARS"]
