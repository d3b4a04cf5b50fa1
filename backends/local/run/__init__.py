"""What every step runs with: kernels, contexts, datasets, worker threads, the thread of a query."""
