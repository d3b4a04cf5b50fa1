"""Who may talk to the studio: requests that name the server itself, with its token, from its own page.

In: the path and the headers of an HTTP request. Out: why it is refused, or None. `Studio` asks for each request."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import field
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from tsql.kernels.process.quick_dataclass import dataclass

WILDCARDS = ("0.0.0.0", "::", "")
"""Hosts that stand for every address of the machine."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Headers(Protocol):
    """The headers of a request."""

    def get_all(self, key: str, /) -> Sequence[str]: ...


@dataclass(frozen=True)
class Refusal:
    """The status and the text of an answer to a request that is not served."""

    status: HTTPStatus
    text: str


FORBIDDEN = HTTPStatus.FORBIDDEN


@dataclass(frozen=True)
class Guards:
    """What a request must have: `host` and `port` are those that the server is bound to."""

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def refuse_host(self, headers: Headers) -> Refusal | None:
        """A `Host` that is not the server's own: a name that an attacker's DNS points to this machine."""
        given = headers.get_all("Host")
        if len(given) == 1 and self._is_own(given[0]):
            return None
        return Refusal(FORBIDDEN, "this is not the address of the studio")

    def refuse_token(self, path: str) -> Refusal | None:
        """An address without the token."""
        given = parse_qs(urlsplit(path).query).get("token", [])
        if len(given) == 1 and hmac.compare_digest(given[0].encode("utf-8", "replace"), self.token.encode()):
            return None
        return Refusal(FORBIDDEN, "the address lacks the token: open the one that tsql studio has printed")

    def refuse_origin(self, headers: Headers) -> Refusal | None:
        """A socket that another page opens. (`refuse_host` has looked at `Host` before.)"""
        origins, hosts = headers.get_all("Origin"), headers.get_all("Host")
        if len(origins) == len(hosts) == 1 and origins[0].lower() == f"http://{hosts[0]}".lower():
            return None
        return Refusal(FORBIDDEN, "only the page of the studio may open its socket")

    def _is_own(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname, parts.port
        except ValueError:
            return False
        if name is None or (port or 80) != self.port or "@" in host or parts.path or parts.query or parts.fragment:
            return False
        if name == self.host.lower() or name in LOOPBACK:
            return True
        # An address in numbers does not pass through DNS.
        return self.host in WILDCARDS and _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
