"""Joins on the threads of one process: tables that all of them build and link, and pipelines that probe them."""
