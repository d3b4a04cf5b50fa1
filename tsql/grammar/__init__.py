"""SQL text to sqlglot's tree and back: the dialect `Temporal`, its parser and its generator."""
