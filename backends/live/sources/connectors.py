"""Connectors: each is one row of `CONNECTORS`, from which all that names them is derived.

CREATE STREAM .. WITH (connector = .., ..) calls `check_options`, a job `open_reader`. A reader is named as text and
imported when it is opened. What a connector needs beside tsql is imported by its own module; `needs` says how it is
installed. Options are data: none of them is evaluated or given to a shell."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tsql.backends.io.kinds import KINDS
from tsql.backends.io.partitioned import OPTIONS as FILE_OPTIONS
from tsql.backends.live.sources.options import Option, checked
from tsql.backends.live.sources.reader import StreamReader
from tsql.kernels.expr.errors import CatalogError, SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass

_PATH = {"path": Option("paths", "a file, a folder or a pattern", required=True)}
_FOLLOW = {
    "follow": Option("flag", "whether to wait for more, and not to end after what is there", False),
    "poll_interval": Option("length", "how often to look for more", "1 second"),
}
_SETTLE = {"settle": Option("length", "how long a file has not changed before it is read", "1 second")}


def _format(*choices: str) -> dict[str, Option]:
    return {
        "format": Option("choice", "how messages are written", choices[0], choices=choices),
        "ignore_errors": Option("flag", "leave out messages that cannot be read, and count them", False),
        "delim": Option("text", "what stands between the fields of CSV", ","),
        "quote": Option("text", "what stands around fields of CSV that need it", '"'),
        "nullstr": Option("text", "a field of CSV that is NULL beside the empty one"),
    }


_START = Option("choice", "where to begin without a checkpoint", "earliest", choices=("earliest", "latest"))
_FOREVER = Option("flag", "whether to wait for more, and not to end after what is there", True)
_LINES = _format("json", "csv") | {"header": Option("flag", "whether the first line has names, to be skipped", False)}


@dataclass(frozen=True)
class Connector:
    """`module` has the class `reader`, made of (options, schema, name), after `arguments` if there are any.

    `options` are checked here. Those of the kind of files `files` are handed on, and so are all that begin with
    `prefix`. `needs` is the command that installs what it takes. `declared` says that the columns must be declared:
    others are read from the data."""

    module: str
    reader: str
    about: str
    options: Mapping[str, Option]
    arguments: tuple[str, ...] = ()
    files: str | None = None
    prefix: str = ""
    needs: str | None = None
    declared: bool = True

    def others(self) -> tuple[str, ...]:
        """The names of options that are handed on as they are."""
        return () if self.files is None else (*KINDS[self.files].load().OPTIONS, *FILE_OPTIONS)


def _files(kind: str, options: Mapping[str, Option]) -> Connector:
    about = f"{kind} files that are there, and with follow = true those that come"
    return Connector("files", "FilesReader", about, options, (kind,), files=kind, declared=False)


CONNECTORS: dict[str, Connector] = {
    "parquet": _files("parquet", _PATH | _FOLLOW),
    "csv": _files("csv", _PATH | _FOLLOW | _SETTLE),
    "json": _files("json", _PATH | _FOLLOW | _SETTLE),
    "arrow": _files("ipc", _PATH | _FOLLOW),
    "tail": Connector(
        "tail",
        "TailReader",
        "the lines that are appended to a text file, also when it is rotated",
        {
            "path": Option("text", "the file", required=True),
            "start": _START,
            "follow": _FOREVER,
            "poll_interval": Option("length", "how often to look for more", "200 milliseconds"),
            **_LINES,
        },
    ),
    "stdin": Connector("lines", "StdinReader", "the lines of standard input", _LINES),
    "socket": Connector(
        "lines",
        "SocketReader",
        "lines from a TCP server, or from all who connect",
        {
            "host": Option("text", "the address to connect to, or to listen on", "127.0.0.1"),
            "port": Option("count", "the port; 0 listens on a free one", required=True),
            "listen": Option("flag", "whether to be the server", False),
            "timeout": Option("length", "how long to wait for the connection", "10 seconds"),
            **_LINES,
        },
    ),
    "flight": Connector(
        "flight",
        "FlightReader",
        "Arrow batches that producers put over Arrow Flight",
        {
            "host": Option("text", "the address to listen on", "127.0.0.1"),
            "port": Option("count", "the port; 0 is a free one", required=True),
            "token": Option("text", "what producers must send as 'authorization: Bearer ..'", secret=True),
            "batches": Option("count", "how many batches may wait; then producers wait", 16),
        },
    ),
    "kafka": Connector(
        "kafka",
        "KafkaReader",
        "the messages of a topic",
        {
            "brokers": Option("text", "addresses, as in 'host:9092,other:9092'", required=True),
            "topic": Option("text", "the name of the topic", required=True),
            "start": _START,
            "follow": _FOREVER,
            "group": Option("text", "a consumer group that is told the offsets of checkpoints"),
            "discover_interval": Option("length", "how often to look for new partitions", "30 seconds"),
            "timeout": Option("length", "how long to wait for an answer of the brokers", "10 seconds"),
            **_format("json", "csv", "binary", "arrow"),
        },
        prefix="kafka.",
        needs="pip install 'tsql[kafka]'",
    ),
    "postgres": Connector(
        "postgres",
        "PostgresReader",
        "the rows of a table, by a key that grows",
        {
            "url": Option("text", "as in 'postgresql://user@host/database'", required=True, secret=True),
            "table": Option("text", "the name of the table, as in 'public.bids'", required=True),
            "key": Option("text", "a column whose values grow, with an index", required=True),
            "start": _START,
            "wait_for_writers": Option("flag", "read no key while a smaller one may still be committed", True),
            "delay": Option("length", "how long after a key was seen to read up to it", "0 seconds"),
            "follow": _FOREVER,
            "poll_interval": _FOLLOW["poll_interval"],
            "timeout": Option("length", "how long to wait for a connection", "10 seconds"),
        },
        needs="pip install 'tsql[postgres]'",
        declared=False,
    ),
    "python": Connector(
        "iterator",
        "IteratorReader",
        "a Python iterable of tables, or a function from an offset to one",
        {"data": Option("object", "the iterable or the function", required=True)},
        declared=False,
    ),
}
"""By name. An alias is in `ALIASES`."""

ALIASES = {"ndjson": "json", "ipc": "arrow", "pq": "parquet", "iterator": "python"}


def connector_of(name: str) -> Connector:
    """The connector of a name or an alias."""
    lowered = name.lower()
    found = CONNECTORS.get(ALIASES.get(lowered, lowered))
    if found is None:
        raise CatalogError(f"unknown connector '{name}'", hint=f"connectors are {', '.join(CONNECTORS)}")
    return found


def check_options(connector: str, options: Mapping[str, Any]) -> None:
    """Check the names and the values of options (`connector` is not one). It opens nothing and needs no library."""
    _checked(connector, options)


def _checked(connector: str, options: Mapping[str, Any]) -> dict[str, Any]:
    about = connector_of(connector)
    return checked(connector, options, about.options, about.others(), about.prefix)


def open_reader(connector: str, options: Mapping[str, Any], schema: Schema | None, name: str) -> StreamReader:
    """The reader of the stream `name`. `schema` has the declared columns; None if there are none, and the data has
    to say."""
    about, settings = connector_of(connector), _checked(connector, options)
    if schema is None and about.declared:
        raise SourceError(
            f"the columns of {name} are not known: connector {connector} does not tell them",
            hint=f"CREATE STREAM {name} (column TYPE, ..) declares them",
        )
    module = f"tsql.backends.live.sources.{about.module}"
    try:
        __import__(module)
    except ImportError as error:
        if about.needs is None or (error.name or "").startswith("tsql"):
            raise
        raise SourceError(f"connector {connector} needs a library: {error}", hint=about.needs) from None
    reader: StreamReader = getattr(sys.modules[module], about.reader)(*about.arguments, settings, schema, name)
    return reader
