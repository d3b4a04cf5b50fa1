"""Sorts collected rows, and puts rows into the order that windows need."""
