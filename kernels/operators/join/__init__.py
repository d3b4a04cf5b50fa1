"""Joins inside pipelines: tables that are built, and operators that probe them."""
