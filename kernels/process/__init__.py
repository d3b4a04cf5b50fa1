"""What concerns the Python process: cores, forks, garbage, recursion, stopping a query."""
