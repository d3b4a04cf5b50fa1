"""Lines from standard input and TCP: random cuts, many clients, ends in the middle of a line."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.sources.polling import check_close_wakes, poll_until, rows_of, steps
from tests.patience import wait_until
from tsql.backends.live.sources.connectors import open_reader
from tsql.backends.live.sources.lines import SocketReader, StdinReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, VARCHAR

SCHEMA = Schema.of(("id", BIGINT), ("name", VARCHAR))


def lines(start: int, end: int) -> bytes:
    return "".join(f"{number},ü{number}\n" for number in range(start, end)).encode()


def rows(start: int, end: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"ü{number}"} for number in range(start, end)]


def listening(**options: Any) -> SocketReader:
    reader = open_reader("socket", {"port": 0, "listen": True, "format": "csv", **options}, SCHEMA, "s")
    assert isinstance(reader, SocketReader)
    reader.open({})
    return reader


def send(port: int, data: bytes, rng: random.Random) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while data:
            cut = rng.randint(1, 50)
            connection.sendall(data[:cut])
            data = data[cut:]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The writing end of a pipe that is standard input."""
    reading, writing = os.pipe()
    monkeypatch.setattr(StdinReader, "descriptor", reading)
    yield writing
    os.close(reading)


def test_stdin(pipe: int) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)

    def write() -> None:
        data = b"id,name\n" + lines(0, 500)[:-1]
        with os.fdopen(pipe, "wb", buffering=0) as file:
            while data:
                cut = rng.randint(1, 100)
                file.write(data[:cut])
                data = data[cut:]

    writer = threading.Thread(target=write)
    writer.start()
    reader = open_reader("stdin", {"format": "csv", "header": True}, SCHEMA, "s")
    assert not reader.replays
    found = steps(reader, lambda: random.randint(1, 40))
    writer.join()
    assert rows_of(found) == rows(0, 500)
    assert found[-1][1] == {"lines": 501}
    assert reader.poll(10, 0.0) is None
    reader.close()


def test_stdin_that_is_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "f").write_bytes(lines(0, 3))
    with open(tmp_path / "f", "rb") as file:
        monkeypatch.setattr(StdinReader, "descriptor", file.fileno())
        reader = open_reader("stdin", {"format": "csv"}, SCHEMA, "s")
        assert rows_of(steps(reader, lambda: 10, {"lines": 7})) == rows(0, 3)


def test_close_wakes(pipe: int) -> None:
    check_close_wakes(open_reader("stdin", {}, SCHEMA, "s"))
    os.close(pipe)
    reader = open_reader("socket", {"port": 0, "listen": True}, SCHEMA, "s")
    check_close_wakes(reader)


def test_many_clients() -> None:
    """Lines of different clients never mix, whatever the pieces that come."""
    seed = random.randrange(10**6)
    print("seed", seed)
    reader = listening()
    clients = [
        threading.Thread(target=send, args=(reader.port, lines(i * 100, i * 100 + 100), random.Random(seed + i)))
        for i in range(8)
    ]
    for client in clients:
        client.start()
    found, offsets = poll_until(reader, lambda rows: len(rows) >= 800)
    assert sorted(found, key=lambda row: row["id"]) == rows(0, 800)
    for i in range(8):
        mine = [row["id"] for row in found if row["id"] // 100 == i]
        assert mine == sorted(mine)
    assert offsets == {"lines": 800}
    for client in clients:
        client.join()
    reader.close()


def test_more_clients_than_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.live.sources.lines.MOST_CLIENTS", 2)
    reader = listening()
    connections = [socket.create_connection(("127.0.0.1", reader.port)) for _ in range(4)]
    for number, connection in enumerate(connections):
        connection.sendall(lines(number, number + 1))
    assert len(poll_until(reader, lambda rows: len(rows) >= 2)[0]) == 2
    assert reader.poll(10, 0.05) == []
    for connection in connections:
        connection.close()
    assert len(poll_until(reader, lambda rows: len(rows) >= 2)[0]) == 2
    reader.close()


def test_client() -> None:
    """The end of the connection is the end of the stream; its last line needs no line break."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(lines(0, 100)[:-1])

        serving = threading.Thread(target=serve)
        serving.start()
        reader = open_reader("socket", {"port": port, "format": "csv"}, SCHEMA, "s")
        assert rows_of(steps(reader, lambda: 7)) == rows(0, 100)
        serving.join()
        reader.close()


def test_a_client_that_breaks_off() -> None:
    """Its last line may be half and is not taken; the others go on."""
    reader = listening()
    with socket.create_connection(("127.0.0.1", reader.port)) as other:
        broken = socket.create_connection(("127.0.0.1", reader.port))
        broken.sendall(lines(0, 2) + b"3,half")
        assert poll_until(reader, lambda rows: len(rows) >= 2)[0] == rows(0, 2)
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        broken.close()
        assert wait_until(lambda: reader.poll(10, 0.01) == [] and len(reader.notices.texts) > 0)
        assert "reset" in reader.notices.texts[0]
        other.sendall(lines(5, 6))
        assert poll_until(reader, lambda rows: len(rows) >= 1)[0] == rows(5, 6)
    reader.close()


def test_bad_lines() -> None:
    reader = listening()
    send(reader.port, b"\n1,a\nx,b\n", random.Random(1))
    with pytest.raises(SourceError, match="127.0.0.1:[0-9]+: line 3: column id: could not convert 'x' to BIGINT"):
        poll_until(reader, lambda rows: len(rows) >= 2)
    reader.close()


def test_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(SourceError, match=f"s cannot listen on 127.0.0.1:{taken}: "):
            listening(port=taken)
    for options, message in (
        ({"port": taken}, f"s cannot connect to 127.0.0.1:{taken}: "),
        ({"port": 0}, "option port is the number of a port, not 0"),
        ({"port": 70_000}, "option port is the number of a port, not 70000"),
        ({"port": "x"}, "option port is a number of at least 0, not 'x'"),
        ({}, 'connector socket needs the option "port"'),
    ):
        with pytest.raises(SourceError, match=message):
            open_reader("socket", options, SCHEMA, "s").open({})
    with pytest.raises(SourceError, match="the offset of s in the checkpoint is damaged"):
        open_reader("stdin", {}, SCHEMA, "s").open({"lines": "x"})
