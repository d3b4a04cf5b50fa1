"""Where the rows of a live query come from: one module a connector, each a `StreamReader` (reader.py).

`connectors.py` is the list of them: what CREATE STREAM .. WITH (connector = ..) may name, and with which options. A job
runs a reader in a thread of its own and keeps its offsets in the checkpoint."""
