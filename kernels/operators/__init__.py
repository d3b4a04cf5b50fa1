"""The operators of pipelines, one file each: sources produce rows, operators pass them on, sinks keep them. The base
classes are in `kernels/emit/pipeline.py`."""
