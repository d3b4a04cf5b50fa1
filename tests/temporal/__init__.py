"""Temporal SQL: brute-force references, data with hard shapes, and the tests that hold the engine to them."""
