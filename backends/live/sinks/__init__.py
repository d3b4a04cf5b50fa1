"""Where the results of a live query go: one module a kind, each a `Sink` (sink.py).

`connectors.py` is the list of those that INSERT INTO a stream may write to; `start(sink=..)` takes a path, a name, a
function or a sink object."""
