"""Scalar functions, one module per group. `registry.SCALARS` imports them all when one is looked for."""
