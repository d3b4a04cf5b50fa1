"""The interactive shell: statements with history and completion, dot commands, and a script runner for piped input."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tsql.catalog import External, Table, View
from tsql.kernels.errors import CatalogError, TsqlError
from tsql.output import TEXT_FORMATS, emit, read_text, report, timing
from tsql.parameters import Parameters
from tsql.script import is_complete
from tsql.session import Session

PROMPT = "tsql> "
CONTINUATION = " ...> "


def history_path() -> Path:
    """Where the shell keeps what was typed."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state) / "tsql" / "history"


class Shell:
    """Reads statements and shows their results until the input ends or `.quit`."""

    def __init__(self, session: Session, params: Parameters = None, *, debug: bool = False) -> None:
        self.session = session
        self.params = params
        self.debug = debug
        self.mode = "table"
        self.show_timing = False
        self.interactive = False
        self.done = False
        self.commands: dict[str, tuple[Callable[[str], None], str, str]] = {
            ".help": (self._help, "", "list the commands"),
            ".tables": (self._tables, "", "list tables and views"),
            ".schema": (self._schema, "[NAME]", "show the columns of a table, or of all"),
            ".timing": (self._timing, "[on|off]", "show the time that each statement takes"),
            ".mode": (self._mode, "[table|csv|json]", "choose how results are written"),
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

        from tsql.completion import SqlCompleter

        path = history_path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            history = FileHistory(str(path))
        except OSError as error:
            print(f"the history is not kept: {path}: {error.strerror}", file=sys.stderr)
            history = InMemoryHistory()
        return PromptSession(
            PROMPT, history=history, completer=SqlCompleter(self.session.catalog, self.commands), complete_while_typing=False,
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
            if not pending and line.startswith("."):
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
            if text.startswith("."):
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
        """Run one dot command."""
        name, _, argument = text.partition(" ")
        matches = [known for known in self.commands if known == name] or [known for known in self.commands if known.startswith(name) and len(name) > 1]
        if name in (".exit", ".q"):
            matches = [".quit"]
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
            print(f"{name + ' ' + usage:<24}{text}")

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

    def _timing(self, argument: str) -> None:
        if argument not in ("", "on", "off"):
            raise CatalogError(f".timing is on or off, not {argument}")
        self.show_timing = not self.show_timing if argument == "" else argument == "on"
        if argument == "":
            print(f"timing is {'on' if self.show_timing else 'off'}")

    def _mode(self, argument: str) -> None:
        if argument and argument not in TEXT_FORMATS:
            raise CatalogError(f"unknown mode {argument}", hint=f"modes are {', '.join(TEXT_FORMATS)}")
        self.mode = argument or self.mode
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
        if text.startswith(".") or not text.strip() or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys
