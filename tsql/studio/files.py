"""The files of the page over HTTP. In: the path of a request. Out: a response with its headers; `Studio` sends it.

Nothing outside the folder of the page is read: each part of a path is a plain name."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path

from websockets.datastructures import Headers
from websockets.http11 import Response

PAGE = Path(__file__).parent / "page"
"""Where the page lies as it was built."""

NOT_BUILT = "the page of the studio is not built: run `make studio` in the checkout"

_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]*")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".wasm": "application/wasm",
    ".txt": "text/plain; charset=utf-8",
}


def index(host: str) -> Response:
    """The page itself."""
    return _file(PAGE / "index.html", host) or answer(HTTPStatus.SERVICE_UNAVAILABLE, NOT_BUILT, host)


def asset(path: str, host: str) -> Response:
    """A file of the page. The folder is public; what the page shows comes by the socket."""
    empty, *names = path.partition("?")[0].split("/")
    found = None
    if not empty and names[:1] == ["assets"] and all(_NAME.fullmatch(name) for name in names):
        found = _file(PAGE.joinpath(*names), host)
    return found or answer(HTTPStatus.NOT_FOUND, "the studio has no such file", host)


def answer(status: HTTPStatus, text: str, host: str) -> Response:
    """A short text as a response."""
    return _response(status, f"{text}\n".encode(), _TYPES[".txt"], host)


def _file(path: Path, host: str) -> Response | None:
    kind = _TYPES.get(path.suffix)
    if kind is None or not path.is_file() or not path.resolve().is_relative_to(PAGE.resolve()):
        return None
    return _response(HTTPStatus.OK, path.read_bytes(), kind, host)


def _response(status: HTTPStatus, body: bytes, kind: str, host: str) -> Response:
    # Nothing is inline: what sets styles does it by the style of an element or by constructed style sheets.
    policy = (
        f"default-src 'self'; connect-src 'self' ws://{host}; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Cache-Control": "no-store",
            "Content-Security-Policy": policy if host else "default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    return Response(status.value, status.phrase, headers, body)
