"""A private PostgreSQL server, for the tests of sources and sinks: `with server() as postgres: postgres.database()`.

It lives in a temporary folder, listens on a free port of the loopback interface, wants a password and ends with the
process that started it. tests/live/conftest.py has it as the fixtures `postgres_server` (one for each test process) and
`postgres` (the address of an empty database)."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.patience import PATIENCE_SECONDS, wait_until

FOLDERS = "/usr/lib/postgresql/*/bin"
"""Where Debian and its kin put the programs."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # Nothing has to survive a crash of the machine.
    "fsync": "off",
    "max_connections": "40",
    "max_prepared_transactions": "40",
    "shared_buffers": "16MB",
    "log_min_messages": "fatal",
}


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, of the newest version; None if they are not installed."""
    found = [Path(path) for path in glob.glob(FOLDERS) if Path(path, "initdb").exists()]
    if found:
        return max(found, key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0)
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


class Server:
    """PostgreSQL over one folder. It can be stopped, or killed, and started again over the same data."""

    def __init__(self, folder: Path, bin: Path) -> None:
        self.folder = folder
        self.bin = bin
        self.user = "tester"
        self.password = secrets.token_hex(8)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        secret = folder / "password"
        secret.write_text(self.password)
        _give(folder)
        _give(secret)
        made = subprocess.run(
            [
                *_as_other(),
                str(bin / "initdb"),
                *("-D", str(folder / "data"), "-U", self.user, "-A", "scram-sha-256", f"--pwfile={secret}"),
                *("--no-sync", "--locale=C", "--encoding=UTF8"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise RuntimeError(f"initdb: {made.stdout}{made.stderr}")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The address of a new, empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        self._ask("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def start(self) -> None:
        """Start it, on the port that it had, and wait until it answers."""
        for _ in range(5):
            # Another process may take the port before the server does.
            port = self.port or _free_port()
            settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
            with open(self.folder / "log", "ab") as log:
                self._process = subprocess.Popen(
                    [
                        *_as_other("--pdeathsig=INT"),
                        str(self.bin / "postgres"),
                        *("-D", str(self.folder / "data"), "-p", str(port), *settings),
                    ],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            if self._answers(port):
                self.port = port
                return
            self._end(signal.SIGQUIT)
        raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End it in order; open connections are cut."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a crash would: what is not committed is gone, and the next start recovers."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _answers(self, port: int) -> bool:
        process = self._process
        assert process is not None
        ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]

        def decided() -> bool:
            return process.poll() is not None or subprocess.run(ready).returncode == 0

        return wait_until(decided) and process.poll() is None

    def _ask(self, database: str, sql: str) -> None:
        done = subprocess.run(
            [str(self.bin / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, self.url(database)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"psql: {done.stderr}")


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A server that runs. RuntimeError if PostgreSQL is not installed."""
    bin = programs()
    if bin is None:
        raise RuntimeError("PostgreSQL is not installed: run .ci/postgres")
    # Not pytest's folder: another user cannot enter it.
    folder = Path(tempfile.mkdtemp(prefix="tsql-postgres-"))
    try:
        made = Server(folder, bin)
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _other_user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: whom to run it as then."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")


def _as_other(*options: str) -> list[str]:
    """The beginning of a command that runs as that user."""
    user = _other_user()
    if user is None:
        return ["setpriv", *options] if options else []
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *options]


def _give(path: Path) -> None:
    user = _other_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
