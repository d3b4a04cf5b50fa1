"""The operators of pipelines, a file each: sources that give rows, operators that pass them on, sinks that keep them.
`kernels/emit/pipeline.py` has their base classes."""
