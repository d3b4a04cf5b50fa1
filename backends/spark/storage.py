"""Credentials for files elsewhere: Hadoop's settings of a Spark session in the words of pyarrow's file systems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tsql.backends.io import remote
from tsql.backends.spark.java import java_session

S3 = {
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "endpoint_override": "endpoint",
    "region": "endpoint.region",
}


def remember(session: SparkSession, paths: Iterable[str]) -> None:
    """Take over the credentials of the buckets of these paths."""
    buckets = {(urlsplit(path).scheme.lower(), urlsplit(path).netloc) for path in paths if remote.is_remote(path)}
    java = java_session(session)
    if not buckets or java is None:
        return
    settings = java.sessionState().newHadoopConf()
    for scheme, host in buckets:
        remote.remember(f"{scheme}://{host}/", storage_of(settings, scheme, host))


def storage_of(settings: Any, scheme: str, host: str) -> remote.Storage:
    """What Hadoop's settings (`get(name)`) say of a bucket."""
    if scheme in ("s3", "s3a", "s3n"):
        # Settings of a bucket come before those of all buckets.
        found = {
            name: settings.get(f"fs.s3a.bucket.{host}.{word}") or settings.get(f"fs.s3a.{word}")
            for name, word in S3.items()
        }
        if settings.get("fs.s3a.connection.ssl.enabled") == "false":
            found["scheme"] = "http"
        endpoint = found.get("endpoint_override")
        if endpoint and "://" in endpoint:
            found["scheme"], _, found["endpoint_override"] = endpoint.partition("://")
        return {name: str(value) for name, value in found.items() if value}
    if scheme in ("abfs", "abfss"):
        account = host.rpartition("@")[2]
        key = settings.get(f"fs.azure.account.key.{account}") or settings.get("fs.azure.account.key")
        return {"account_name": account.partition(".")[0], "account_key": str(key)} if key else {}
    if scheme in ("gs", "gcs"):
        token = settings.get("fs.gs.auth.access.token")
        return {"access_token": str(token)} if token else {}
    return {}
