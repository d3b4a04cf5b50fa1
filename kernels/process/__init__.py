"""The Python process: cores, forks, garbage collection, recursion, stopping a query."""
