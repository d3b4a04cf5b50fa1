"""Steps that need more than memory: rows in files, and the ways to group, join, sort and window them from there."""
