"""Kinds of sinks: each is one row of `CONNECTORS`. Turns what CREATE STREAM .. WITH (..) says, or what `start(sink=..)`
takes, into a `Sink`.

A sink is named as text and imported when it is used; this module imports none. Options are checked against the row and
reach the sink as arguments of its class."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsql.backends.io import remote
from tsql.backends.io.kinds import KINDS
from tsql.backends.live.sinks.sink import Sink
from tsql.kernels.expr.errors import CatalogError, SourceError
from tsql.kernels.process.quick_dataclass import dataclass

TEXT, COUNT, FLAG = "text", "count", "flag"
_SHOWN = {TEXT: "a string", COUNT: "a number of at least 0", FLAG: "true or false"}

FILES = (".ndjson", ".jsonl")
"""Endings of the names of files that jobs write. A name without an ending of a file is a folder."""


@dataclass(frozen=True)
class Option:
    """kind: TEXT, COUNT or FLAG. argument: its name in the class, if another."""

    kind: str = TEXT
    is_required: bool = False
    argument: str = ""


@dataclass(frozen=True)
class Connector:
    """`module` has the class `sink`, made of the options. needs: the extra to install.

    refused: options that other systems have here, with the reason why there are none. settings: options that begin with
    this go to the client library as they are, in one argument `settings`. has_staging: it takes a folder `staging`,
    which is beside the checkpoint unless the option says otherwise."""

    module: str
    sink: str
    options: Mapping[str, Option]
    needs: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    settings: str = ""
    has_staging: bool = False

    def load(self) -> Any:
        """The class."""
        name = f"tsql.backends.live.sinks.{self.module}"
        __import__(name)
        return getattr(sys.modules[name], self.sink)


_PATH = Option(is_required=True)
_PARTITIONED = "a rename shows all files of an epoch at once, so an epoch is one file"

CONNECTORS = {
    "parquet": Connector(
        "parquet_folder",
        "ParquetFolder",
        {"path": _PATH, "compression": Option(), "row_group_rows": Option(COUNT)},
        refused=(("partition_by", _PARTITIONED),),
    ),
    "ndjson": Connector("ndjson_file", "NdjsonFile", {"path": _PATH}),
    "delta": Connector(
        "delta",
        "DeltaSink",
        {"path": _PATH, "compression": Option(), "row_group_rows": Option(COUNT)},
        needs="delta",
        refused=(("partition_by", "an epoch is one file"),),
    ),
    "postgres": Connector(
        "postgres",
        "PostgresSink",
        {"url": Option(is_required=True), "table": Option(is_required=True), "schema": Option()},
        needs="postgres",
    ),
    "kafka": Connector(
        "kafka",
        "KafkaSink",
        {
            "brokers": Option(is_required=True),
            "topic": Option(is_required=True),
            "progress_topic": Option(),
            "staging": Option(),
        },
        needs="kafka",
        settings="kafka.",
        has_staging=True,
    ),
}


ALIASES = {"json": "ndjson", "jsonl": "ndjson", "pq": "parquet"}
"""Other names, as CREATE STREAM takes them for what it reads."""


def connector_of(name: str) -> Connector:
    """The connector of a name or an alias."""
    lowered = name.lower()
    found = CONNECTORS.get(ALIASES.get(lowered, lowered))
    if found is None:
        raise CatalogError(f"no connector {name!r} to write to", hint=f"results go to {', '.join(sorted(CONNECTORS))}")
    return found


def check_options(connector: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a connector as arguments of its class. Raises an error for one that is unknown, missing, or of
    another type."""
    known = connector_of(connector)
    found: dict[str, Any] = {}
    for name, value in options.items():
        if known.settings and name.startswith(known.settings):
            found.setdefault("settings", {})[name.removeprefix(known.settings)] = _checked(name, Option(), str(value))
            continue
        if name in dict(known.refused):
            raise SourceError(f"connector {connector} has no option {name}: {dict(known.refused)[name]}")
        if name not in known.options:
            names = ", ".join(sorted([*known.options, *([f"{known.settings}*"] if known.settings else [])]))
            raise SourceError(f"connector {connector} has no option {name!r}", hint=f"its options are {names}")
        option = known.options[name]
        found[option.argument or name] = _checked(name, option, value)
    for name, option in known.options.items():
        if option.is_required and (option.argument or name) not in found:
            raise SourceError(f"connector {connector} needs the option {name}")
    return found


def _checked(name: str, option: Option, value: Any) -> Any:
    match option.kind:
        case "text" if isinstance(value, os.PathLike):
            value = os.fspath(value)
        case "flag" if isinstance(value, str) and value.lower() in ("true", "false"):
            value = value.lower() == "true"
        case "count" if isinstance(value, str) and value.isdecimal():
            value = int(value)
    wanted = {TEXT: str, COUNT: int, FLAG: bool}[option.kind]
    if type(value) is not wanted or (isinstance(value, int) and value < 0):
        raise SourceError(f"option {name} is {_SHOWN[option.kind]}, not {value!r}")
    if isinstance(value, str) and (not value or "\0" in value):
        raise SourceError(f"option {name} is empty or holds a NUL character")
    return value


def sink_of(connector: str, options: Mapping[str, Any], checkpoint: str | os.PathLike[str] | None = None) -> Sink:
    """The sink of a connector. checkpoint: the folder of the job's checkpoints, if it has them."""
    arguments = check_options(connector, options)
    known = connector_of(connector)
    if known.has_staging and "staging" not in arguments and checkpoint is not None:
        beside = Path(checkpoint).absolute()
        arguments["staging"] = str(beside.with_name(f"{beside.name}-staging"))
    sink: Sink = known.load()(**arguments)
    return sink


def sink_for(target: Any) -> Sink:
    """What `start(sink=..)` takes as a sink: a sink, a function, the name of an NDJSON file, or a folder. The caller
    knows tables, and asks only for what is none."""
    if isinstance(target, str | os.PathLike):
        return _sink_of_path(target)
    if not isinstance(target, type):
        if all(callable(getattr(target, name, None)) for name in _METHODS):
            found: Sink = target
            return found
        if callable(target):
            from tsql.backends.live.sinks.callback import Callback

            return Callback(target)
    what = f"the class {target.__name__}" if isinstance(target, type) else f"{type(target).__name__} {target!r:.60}"
    raise SourceError(
        f"results cannot go to {what}",
        hint="sink is a function, a folder, the name of an .ndjson file, the name of a table, or an object with the "
        f"methods {', '.join(_METHODS)}",
    )


_METHODS = ("open", "recover", "write", "prepare", "commit", "last_committed", "close")


def _sink_of_path(target: str | os.PathLike[str]) -> Sink:
    path = os.fspath(target)
    if not isinstance(path, str):
        path = os.fsdecode(path)
    if not path or "\0" in path:
        raise SourceError("the path of a sink is empty or holds a NUL character")
    if remote.is_remote(path):
        raise SourceError(f"cannot write {remote.redacted(path)}: jobs write local files and folders only")
    ending = os.path.splitext(path)[1].lower()
    if ending in FILES:
        return sink_of("ndjson", {"path": path})
    if any(ending in kind.endings for kind in KINDS.values()):
        raise SourceError(
            f"jobs do not write {ending} files ({path})",
            hint="name a folder, which gets Parquet files, or an .ndjson file",
        )
    return sink_of("parquet", {"path": path})
