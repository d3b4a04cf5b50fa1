"""Sorting of collected rows, and rows in the order that windows need."""
