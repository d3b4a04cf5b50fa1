"""Who is served: only requests to the server's own address, with its token, from its own page."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import tsql
from tests.patience import PATIENCE_SECONDS
from tests.studio.page import Page, get, opened, origin, socket_address
from tsql.studio import Studio, files
from tsql.studio.guards import Guards
from tsql.studio.server import MOST_MESSAGE_BYTES


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    with tsql.connect(threads=1) as db, db.studio() as found:
        yield found


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page that is built, and a file beside it that is not part of it."""
    folder = tmp_path / "page"
    (folder / "assets" / "deep").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>studio</title>")
    (folder / "assets" / "app.js").write_text("let x = 1")
    (folder / "assets" / "app.css").write_text("a {}")
    (folder / "assets" / "deep" / "font.woff2").write_bytes(b"wOF2")
    (folder / "assets" / "secret.py").write_text("no")
    (tmp_path / "secret.js").write_text("secret")
    (folder / "assets" / "link.js").symlink_to(tmp_path / "secret.js")
    monkeypatch.setattr(files, "PAGE", folder)
    return folder


def test_page(studio: Studio, built: Path) -> None:
    path = studio.address.partition(str(studio.guards.port))[2]
    status, headers, body = get(studio, path)
    assert status == 200 and body == (built / "index.html").read_bytes()
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"]
    assert (
        policy.startswith("default-src 'self';") and "script-src" not in policy and "frame-ancestors 'none'" in policy
    )
    assert headers["referrer-policy"] == "no-referrer" and headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store" and "set-cookie" not in headers
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/assets/app.js", "text/javascript; charset=utf-8"),
        ("/assets/app.css?v=1", "text/css; charset=utf-8"),
        ("/assets/deep/font.woff2", "font/woff2"),
    ],
)
def test_assets(studio: Studio, built: Path, path: str, kind: str) -> None:
    status, headers, body = get(studio, path)
    assert status == 200 and headers["content-type"] == kind and body
    assert headers["x-content-type-options"] == "nosniff" and "content-security-policy" in headers


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../secret.js",
        "/assets/..%2f..%2fsecret.js",
        "/assets/%2e%2e/%2e%2e/secret.js",
        "/../secret.js",
        "//secret.js",
        "/assets//etc/passwd",
        "/assets/link.js",
        "/assets/.hidden.js",
        "/assets/secret.py",
        "/assets/none.js",
        "/assets/app.js%00.css",
        "/assets\\app.js",
        "/assets/",
        "/app.js",
        "/etc/passwd",
    ],
)
def test_traversal(studio: Studio, built: Path, path: str) -> None:
    assert get(studio, path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=wrong", "/index.html", "/?token=%ff", "/?token=%C3%A4"])
def test_wrong_tokens(studio: Studio, built: Path, path: str) -> None:
    status, headers, body = get(studio, path)
    assert status == 403 and b"token" in body and "content-security-policy" in headers
    assert get(studio, f"{path}{'&' if '?' in path else '?'}token={studio.guards.token}x")[0] == 403


def test_wrong_hosts(studio: Studio, built: Path) -> None:
    path, port = f"/?token={studio.guards.token}", studio.guards.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1:1", "127.0.0.1", f"x@127.0.0.1:{port}", ""):
        assert get(studio, path, Host=host)[0] == 403, host
        assert get(studio, "/assets/app.js", Host=host)[0] == 403, host
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
        assert get(studio, path, Host=host)[0] == 200, host


def test_hosts_of_a_server_for_all() -> None:
    """Bound to every address, the server answers to numbers, which no DNS can redirect."""
    guards = Guards("0.0.0.0", 80)
    for host, is_refused in (
        ("10.1.2.3", False),
        ("[fe80::1]:80", False),
        ("evil.example", True),
        ("10.1.2.3:81", True),
    ):
        assert (guards.refuse_host(Headers({"Host": host})) is not None) == is_refused, host
    twice = Headers()
    twice["Host"] = "localhost"
    twice["Host"] = "evil.example"
    assert guards.refuse_host(twice) is not None
    assert "token" not in repr(guards)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods(studio: Studio, built: Path, method: str) -> None:
    """There is nothing but GET."""
    with socket.create_connection(("127.0.0.1", studio.guards.port), timeout=PATIENCE_SECONDS) as raw:
        host = f"127.0.0.1:{studio.guards.port}"
        raw.sendall(f"{method} /?token={studio.guards.token} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize("wrong", ["http://evil.example", "null", "https://127.0.0.1", None])
def test_wrong_origins(studio: Studio, wrong: str | None) -> None:
    with pytest.raises(InvalidStatus) as found, connect(socket_address(studio), origin=wrong):
        pass
    assert found.value.response.status_code == 403


def test_socket_without_token(studio: Studio) -> None:
    for address in (socket_address(studio).partition("?")[0], f"{socket_address(studio)}x"):
        with pytest.raises(InvalidStatus) as found, connect(address, origin=origin(studio)):
            pass
        assert found.value.response.status_code == 403


def test_socket_of_another_host(studio: Studio) -> None:
    """An address of an attacker's name, and a page of the same name."""
    evil = f"evil.example:{studio.guards.port}"
    with (
        socket.create_connection(("127.0.0.1", studio.guards.port)) as raw,
        pytest.raises(InvalidStatus) as found,
        connect(f"ws://{evil}/?token={studio.guards.token}", sock=raw, origin=f"http://{evil}"),
    ):
        pass
    assert found.value.response.status_code == 403


def test_large_messages(studio: Studio) -> None:
    with opened(studio) as page:
        page.socket.send("x" * (MOST_MESSAGE_BYTES + 1))
        with pytest.raises(ConnectionClosed):
            page.next()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"{}", "a request is text"),
        ("nonsense", "a request is JSON"),
        ("[" * 100_000, "a request is JSON"),
        ("[]", "a request is an object"),
        ('{"op": "hello"}', "takes a whole number as its id"),
        ('{"op": "hello", "id": true}', "takes a whole number as its id"),
        ('{"op": "eval", "id": 7}', "the studio has no op 'eval'"),
        ('{"op": ["run"], "id": 7}', "the studio has no op"),
        ('{"op": "run", "id": 7}', "run takes a text as its sql"),
        ('{"op": "run", "id": 7, "sql": 3}', "run takes a text as its sql"),
        ('{"op": "run", "id": 7, "sql": "SELECT 1", "panel": {}}', "a panel is a number or a text"),
        ('{"op": "run", "id": 7, "sql": "SELECT 1", "filters": [1]}', "a filter names its column"),
        ('{"op": "rows", "id": 7, "of": 3, "first": 0, "count": 1}', "the run 3 has no rows here"),
        ('{"op": "rows", "id": 7, "of": 3}', "rows takes a whole number as its first"),
        ('{"op": "stop", "id": 7}', "stop takes a whole number as its of"),
        ('{"op": "complete", "id": 7, "sql": "S", "position": "x"}', "takes a whole number as its position"),
    ],
)
def test_bad_messages(page: Page, message: str | bytes, said: str) -> None:
    page.socket.send(message)
    found = page.next()
    assert isinstance(found, dict) and found["type"] == "error" and said in found["message"]
    assert page.answer("history")["type"] == "history", "the socket still serves"


def test_page_that_is_not_built(studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAGE", tmp_path / "none")
    status, _, body = get(studio, f"/?token={studio.guards.token}")
    assert status == 503 and b"is not built" in body
