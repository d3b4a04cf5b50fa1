"""Scalar functions of dates, times and intervals."""
