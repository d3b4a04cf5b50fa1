"""Scalar functions of strings and bytes."""
