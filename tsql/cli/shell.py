"""The interactive shell: statements with history and completion, dot commands, and a script runner for piped input."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsql.catalog.catalog import External, Table, View
from tsql.cli.output import ALIASES as MODE_ALIASES
from tsql.cli.output import TEXT_FORMATS, emit, read_text, report, timing
from tsql.grammar.script import is_complete
from tsql.kernels.expr.errors import CatalogError, TsqlError
from tsql.kernels.expr.keywords import quote
from tsql.parameters import Parameters
from tsql.session import Session
from tsql.session import connect as open_session

if TYPE_CHECKING:
    from tsql.cli.completion import SqlCompleter

PROMPT = "tsql> "
CONTINUATION = " ...> "
ALIASES = {
    "exit": ".quit", "quit": ".quit", "help": ".help", ".exit": ".quit", ".q": ".quit", ".timer": ".timing",
    "\\q": ".quit", "\\?": ".help", "\\d": ".describe", "\\dt": ".tables", "\\i": ".read", "\\timing": ".timing",
    "\\c": ".open",
}  # fmt: skip
"""Commands that users of other shells type."""
_WORD = re.compile(r"\s*(exit|quit|help)\s*;?\s*", re.IGNORECASE)


def is_command(text: str) -> bool:
    """Whether the input is a command of the shell and not a statement."""
    return text.startswith((".", "\\")) or _WORD.fullmatch(text) is not None


def history_path() -> Path:
    """The history file of the shell."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state) / "tsql" / "history"


class Shell:
    """Reads statements and shows their results until the input ends or `.quit`."""

    def __init__(
        self,
        session: Session,
        params: Parameters = None,
        *,
        debug: bool = False,
        connect: Callable[[str | None, bool], Session] | None = None,
    ) -> None:
        self.session = session
        self.connect = connect or (lambda path, read_only: open_session(path, read_only=read_only))
        self.params = params
        self.debug = debug
        self.mode = "table"
        self.show_timing = False
        self.interactive = False
        self.done = False
        self.completer: SqlCompleter | None = None
        self.commands: dict[str, tuple[Callable[[str], None], str, str]] = {
            ".help": (self._help, "", "list the commands"),
            ".tables": (self._tables, "", "list tables and views"),
            ".schema": (self._schema, "[NAME]", "show the columns of a table, or of all"),
            ".describe": (self._describe, "[NAME]", "show the columns of a table with their types, or list the tables"),
            ".timing": (self._timing, "[on|off]", "show the time that each statement takes"),
            ".mode": (self._mode, "[MODE]", f"choose how results are written: {', '.join(TEXT_FORMATS)}"),
            ".open": (self._open, "[--readonly] [FOLDER]", "close the database and open another (none: one in memory)"),
            ".read": (self._read, "FILE", "run the statements of a file"),
            ".quit": (self._quit, "", "leave (also Ctrl-D)"),
        }

    def run(self) -> int:
        """Serve the terminal, or the script on stdin; the exit code."""
        if sys.stdin.isatty():
            self.serve(self.prompt_session())
            return 0
        return 0 if self.script(sys.stdin) else 1

    def prompt_session(self, **options: Any) -> Any:
        """The line editor; `options` reach prompt_toolkit (tests pass their own input and output)."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import SqlLexer

        from tsql.cli.completion import SqlCompleter

        path = history_path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            history = FileHistory(str(path))
        except OSError as error:
            print(f"the history is not kept: {path}: {error.strerror}", file=sys.stderr)
            history = InMemoryHistory()
        self.completer = SqlCompleter(self.session.catalog, self.commands)
        return PromptSession(
            PROMPT, history=history, completer=self.completer, complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer), multiline=True, prompt_continuation=CONTINUATION, key_bindings=_keys(),
            enable_history_search=True, **options,
        )  # fmt: skip

    def serve(self, prompts: Any) -> None:
        """Read, run and show until the user leaves. Ctrl-C drops the line, or cancels the statement that runs."""
        self.interactive = True
        print('tsql: end a statement with ";", .help lists the commands', flush=True)
        while not self.done:
            try:
                text = prompts.prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            self.submit(text)

    def script(self, lines: Iterable[str], origin: str | None = None) -> bool:
        """Run statements and dot commands from lines of text; False at the first that fails."""
        pending: list[str] = []
        for number, line in enumerate(lines):
            if not pending and is_command(line):
                if not self.submit(line, origin):
                    return False
                if self.done:
                    return True
                continue
            if not pending:
                if not line.strip():
                    continue
                pending = ["\n" * number]  # so that errors name the line in the file
            pending.append(line)
            if ";" in line and is_complete("".join(pending)):
                if not self.submit("".join(pending), origin):
                    return False
                pending = []
        return self.submit("".join(pending), origin) if pending else True

    def submit(self, text: str, origin: str | None = None) -> bool:
        """Run a dot command or statements and show the outcome; whether all went well."""
        try:
            if is_command(text):
                self.command(text.strip())
            elif text.strip(" \t\r\n;"):
                self._statements(text, origin)
            return True
        except KeyboardInterrupt:
            print("cancelled", file=sys.stderr, flush=True)
        except BrokenPipeError:
            raise
        except Exception as error:
            report(error, debug=self.debug)
        return False

    def command(self, text: str) -> None:
        """Run one command: a dot command, or what others call it."""
        name, _, argument = text.rstrip("; \t\r\n").partition(" ")
        name = ALIASES.get(name.lower(), name)
        matches = [known for known in self.commands if known == name] or [
            known for known in self.commands if known.startswith(name) and len(name) > 1
        ]
        if len(matches) != 1:
            raise CatalogError(f"unknown command {name}", hint=".help lists the commands")
        self.commands[matches[0]][0](argument.strip())

    def _statements(self, text: str, origin: str | None) -> None:
        begun = time.perf_counter()
        for relation in self.session.statements(text, self.params, origin=origin):
            rows = None
            if relation.message is None:
                rows = emit(relation, self.mode)
            elif self.interactive:
                print(relation.message)
            sys.stdout.flush()
            for note in relation.notes:
                print(f"note: {note}", file=sys.stderr)
            if self.show_timing:
                print(timing(relation, begun, rows), file=sys.stderr, flush=True)
            begun = time.perf_counter()

    def _help(self, _: str) -> None:
        for name, (_, usage, text) in self.commands.items():
            print(f"{name + ' ' + usage:<32}{text}")
        print("exit, quit, \\q, \\d [NAME], \\dt, \\i FILE and \\? work too")

    def _tables(self, _: str) -> None:
        for name in self.session.tables():
            print(name)

    def _schema(self, name: str) -> None:
        for table in [name] if name else self.session.tables():
            entry = self.session.catalog.entry(table) or self.session.catalog.require(table)
            entry = entry.data if isinstance(entry, Table) else entry
            if isinstance(entry, External):
                print(f"{entry.create_text(table)};")
            elif isinstance(entry, View):
                print(f"CREATE VIEW {entry.name} AS {entry.text.strip()};")
            else:
                columns = ", ".join(f"{f.name} {f.type}" for f in entry.schema)
                print(f"CREATE TABLE {table} ({columns});")

    def _describe(self, name: str) -> None:
        if not name:
            return self._tables("")
        self.session.catalog.require(name)
        emit(self.session.sql(f"DESCRIBE {quote(name)}"), self.mode)

    def _open(self, argument: str) -> None:
        try:
            words = shlex.split(argument)
        except ValueError as error:
            raise CatalogError(f".open takes the name of a folder: {error}") from error
        read_only = bool(words) and words[0] in ("--readonly", "--read-only", "-readonly")
        words = words[read_only:]
        if len(words) > 1:
            raise CatalogError(".open takes the name of one folder")
        # The old one stays open if there is no new one; the same one cannot be open twice.
        old, path = self.session, words[0] if words else None
        if path is not None and old.path is not None and os.path.exists(path) and os.path.samefile(path, old.path):
            old.close()
        self.session = self.connect(path, read_only)
        old.close()
        if self.completer is not None:
            self.completer.catalog = self.session.catalog

    def _timing(self, argument: str) -> None:
        if argument not in ("", "on", "off"):
            raise CatalogError(f".timing is on or off, not {argument}")
        self.show_timing = not self.show_timing if argument == "" else argument == "on"
        if argument == "":
            print(f"timing is {'on' if self.show_timing else 'off'}")

    def _mode(self, argument: str) -> None:
        chosen = MODE_ALIASES.get(argument.lower(), argument.lower())
        if chosen and chosen not in TEXT_FORMATS:
            raise CatalogError(f"unknown mode {argument}", hint=f"modes are {', '.join(TEXT_FORMATS)}")
        self.mode = chosen or self.mode
        if not argument:
            print(f"the mode is {self.mode}")

    def _read(self, argument: str) -> None:
        path = argument.strip("'\"")
        if not path:
            raise CatalogError(".read takes the name of a file")
        text, origin = read_text(path, "SQL file")
        outer, self.interactive = self.interactive, False
        try:
            if not self.script(text.splitlines(keepends=True), origin):
                raise TsqlError(f"{path} was left at the error above")
        finally:
            self.interactive = outer

    def _quit(self, _: str) -> None:
        self.done = True


def _keys() -> Any:
    """Enter sends what is complete and otherwise starts a new line; Alt-Enter always sends."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if is_command(text) or not text.strip() or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys
