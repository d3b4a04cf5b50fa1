"""Hints of a query as constraints on its plan: what each demands, and where it was applied."""
