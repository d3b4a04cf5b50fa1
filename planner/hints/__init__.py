"""Hints of a query as constraints on its plan: what each hint demands, and where it was applied."""
