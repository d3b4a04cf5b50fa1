"""Scalar functions, one module per group. `registry.SCALARS` imports them all on the first lookup."""
