"""Turns subqueries into joins: removes every `Apply` and `Outer` from a logical plan."""
