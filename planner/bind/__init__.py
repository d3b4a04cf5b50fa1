"""Scalar SQL to typed expressions: sqlglot's tree and the names in scope in, `kernels.expr` out. Imports nothing else
of the planner."""
