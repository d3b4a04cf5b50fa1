"""Steps that outgrow memory: rows in files, and the ways to group, join, sort and window them from there."""
