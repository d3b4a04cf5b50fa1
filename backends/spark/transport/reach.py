"""Whether a server is there: asked before Spark, which would try again for minutes."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

from tsql.kernels.expr.errors import CatalogError

REACH_SECONDS = 10
CONNECT_PORT = 15002


def check_master(master: str) -> None:
    """Refuse a standalone master (`spark://host:port,..`) or a Spark Connect server (`sc://host:port`) if none of its
    addresses answers. Other masters are left to Spark."""
    kind, found, rest = master.partition("://")
    if not found or kind not in ("spark", "sc"):
        return
    reasons = []
    for address in rest.split(",") if kind == "spark" else [rest]:
        try:
            url = urlsplit(f"//{address}")
            host, port = url.hostname, url.port or (CONNECT_PORT if kind == "sc" else 7077)
        except ValueError as error:
            raise CatalogError(f"{master} is no address of a Spark server: {error}") from error
        if not host:
            raise CatalogError(f"{master} is no address of a Spark server", hint=f"such as {kind}://host:{port}")
        try:
            socket.create_connection((host, port), REACH_SECONDS).close()
            return
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
    raise unreachable(kind, "; ".join(reasons))


def check_server(session: Any) -> None:
    """Refuse a Spark Connect session whose server does not answer, or is of another version of Spark."""
    import grpc
    import pyspark

    from tsql.backends.spark.failures import telling

    try:
        grpc.channel_ready_future(session.client._channel).result(timeout=REACH_SECONDS)
    except grpc.FutureTimeoutError as error:
        where = getattr(session.client._builder, "endpoint", session.client.host)
        raise unreachable("sc", f"{where}: no answer in {REACH_SECONDS} s") from error
    with telling():
        there, here = str(session.version), str(pyspark.__version__)
    if there.split(".")[:2] != here.split(".")[:2]:
        raise CatalogError(
            f"the Spark Connect server is Spark {there}, and PySpark here is {here}",
            hint=f"use a server of Spark {'.'.join(here.split('.')[:2])}",
        )


def unreachable(kind: str, reasons: str) -> CatalogError:
    """The error about a server that is not there."""
    if kind == "sc":
        return CatalogError(
            f"no Spark Connect server is at {reasons}", hint="start one with sbin/start-connect-server.sh of Spark"
        )
    return CatalogError(f"no Spark master is at {reasons}", hint="start one with sbin/start-master.sh of Spark")
