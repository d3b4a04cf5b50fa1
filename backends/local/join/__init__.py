"""Joins on the threads of one process: hash tables built and linked by all threads, and pipelines that probe them."""
