"""The analysis of temporal SQL: windows, lifetimes, joins in time, patterns, streams."""
