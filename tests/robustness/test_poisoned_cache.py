"""A cache folder that somebody else can write to, or whose entries were changed: nothing of it is run, and every answer
is right."""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
import re
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tsql
from tests.cache_entries import content_of, entries, label_of, replace
from tests.robustness.bad_entries import HEADS, HEADS_OF_CODE, JSON, OBJECTS, changed_object
from tests.robustness.mutations.edits import mutate_bytes
from tsql.cli.command import main
from tsql.kernels.codegen import object_cache
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.codegen.object_cache import flush
from tsql.kernels.codegen.objects import ObjectCode
from tsql.kernels.codegen.sealed import KEY_BYTES, KEY_FILE
from tsql.kernels.process import private_folder
from tsql.kernels.process.private_folder import NotPrivate, open_private

SOMEBODY = 65534
ROOT = Path(__file__).parents[2]
QUERY = "SELECT i % 3 AS g, sum(i * 2) AS s, count(*) AS n FROM range(1000) t(i) WHERE i > 10 GROUP BY g ORDER BY g"
STORED = "SELECT k, sum(v) AS s FROM t WHERE v > 2 GROUP BY k ORDER BY k"


def rows_of_query() -> list[tuple[int, int, int]]:
    """What QUERY gives, as plain code."""
    groups: dict[int, list[int]] = {}
    for i in range(11, 1000):
        groups.setdefault(i % 3, []).append(i * 2)
    return [(g, sum(values), len(values)) for g, values in sorted(groups.items())]


def rows_of_stored() -> list[tuple[int, int]]:
    """What STORED gives over the table of `ask`."""
    return [(k, sum(v for v in range(3, 20) if v % 2 == k)) for k in (0, 1)]


def ask(stored: bool = False) -> tsql.Relation:
    """Run a query as a process would that has compiled nothing; its rows are right. Whatever it made is on disk
    afterwards."""
    compiler()._memory, compiler()._shared, compiler()._routines = {}, {}, {}
    with tsql.connect(threads=1) as db:
        if stored:
            db.sql("CREATE TABLE t AS SELECT i % 2 AS k, i AS v FROM range(20) t(i)")
        relation = db.sql(STORED if stored else QUERY)
        assert relation.fetchall() == (rows_of_stored() if stored else rows_of_query())
    flush()
    return relation


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test makes the compiler and the cache forget comes back."""
    compiler().pool()
    flush()
    for name in ("_memory", "_shared", "_routines"):
        monkeypatch.setattr(compiler(), name, {})
    monkeypatch.setattr(object_cache, "_opened", None)
    monkeypatch.setattr(object_cache, "_temporary", None)
    monkeypatch.setattr(object_cache, "_notes", [])
    yield
    flush()
    if object_cache._temporary is not None:
        object_cache._leave()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the cache that is not there yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TSQL_CACHE", str(folder))
    return folder


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let a file or folder belong to another user. Who is not root cannot do that, and is told so by `fstat` alone."""
    given: set[int] = set()
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        known = real(descriptor)
        return os.stat_result((*known[:4], SOMEBODY, *known[5:])) if known.st_ino in given else known

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
        else:
            given.add(path.lstat().st_ino)
            monkeypatch.setattr(private_folder.os, "fstat", fstat)

    return give


def kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the folder is used, and a temporary one otherwise; the answers are right either way."""
    monkeypatch.setenv("TSQL_CACHE", str(folder))
    monkeypatch.setattr(object_cache, "_opened", None)
    ask()
    return object_cache._opened[1] is not None and object_cache._opened[1].path == folder


# Folders


def test_folders_and_files_are_the_users_own(cache: Path) -> None:
    os.umask(umask := os.umask(0))
    os.umask(0)
    try:
        ask()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in cache.iterdir()} == {0o600}
    assert (cache / KEY_FILE).stat().st_size == KEY_BYTES


def test_all_folders_that_are_made_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(tmp_path / "a" / "b" / "c", monkeypatch)
    assert [
        stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c")
    ] == [0o700] * 3


@pytest.mark.parametrize(
    ("mode", "used"),
    [(0o700, True), (0o755, True), (0o500, True), (0o775, False), (0o757, False), (0o777, False), (0o1777, False)],
)
def test_a_folder_of_ours_that_others_can_write_to(
    cache: Path, monkeypatch: pytest.MonkeyPatch, mode: int, used: bool
) -> None:
    """Others may read it, but not the key. The sticky bit helps nothing: they could still add entries."""
    cache.mkdir()
    cache.chmod(0o700)
    assert kept(cache, monkeypatch)
    before = {path: path.read_bytes() for path in cache.iterdir()}
    cache.chmod(mode)
    assert kept(cache, monkeypatch) is used
    assert before.items() <= {path: path.read_bytes() for path in cache.iterdir()}.items()


@pytest.mark.parametrize("mode", [0o700, 0o1777])
def test_a_folder_of_another_user(
    cache: Path, monkeypatch: pytest.MonkeyPatch, give_away: Callable[[Path], None], mode: int
) -> None:
    """Its entries are not even looked at: here they are good ones, and are made again all the same."""
    ask()
    made = {path: path.read_bytes() for path in cache.iterdir()}
    cache.chmod(mode)
    give_away(cache)
    assert not kept(cache, monkeypatch)
    assert {path: path.read_bytes() for path in cache.iterdir()} == made
    assert {path.origin for path in compiler()._memory.values()} == {"llvm"}
    temporary = object_cache._temporary[1]
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o700 and len(entries(temporary)) >= len(entries(cache)) - 1


def test_the_user_is_told_once(cache: Path, give_away: Callable[[Path], None]) -> None:
    cache.mkdir()
    give_away(cache)
    (note,) = ask().notes
    assert note == (
        f"compiled code is not kept in {cache}: {cache} belongs to another user (make it a folder that "
        "only you can write to, or name another with TSQL_CACHE)"
    )
    assert ask().notes == []


def test_the_command_line_says_so(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    assert main(["run", "SELECT 1 AS x; SELECT 2 AS y", "-f", "csv"]) == 0
    out, err = capfd.readouterr()
    assert (
        out == "x\n1\ny\n2\n"
        and err.startswith(f"note: compiled code is not kept in {cache}: other users can write to {cache} (")
        and err.count("\n") == 1
    )


@pytest.mark.parametrize(("mode", "used"), [(0o777, False), (0o1777, True), (0o770, False), (0o755, True)])
def test_a_folder_above_it_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, used: bool
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    assert kept(above / "cache", monkeypatch) is used
    assert kept(above / "more" / "cache", monkeypatch) is used


def test_a_folder_above_it_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_away: Callable[[Path], None]
) -> None:
    (tmp_path / "theirs").mkdir()
    give_away(tmp_path / "theirs")
    assert not kept(tmp_path / "theirs" / "cache", monkeypatch)
    assert not (tmp_path / "theirs" / "cache").exists()


def test_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links of ours are followed, wherever they are on the path, to folders that hold as any other."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "there").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "up").symlink_to("../real/deeper")
    assert kept(tmp_path / "there", monkeypatch)
    assert entries(tmp_path / "real")
    assert kept(tmp_path / "there" / "up" / "cache", monkeypatch)
    assert entries(tmp_path / "real" / "deeper" / "cache")
    (tmp_path / "real").chmod(0o777)
    assert not kept(tmp_path / "there", monkeypatch)


def test_a_link_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_away: Callable[[Path], None]
) -> None:
    """In a folder such as /tmp: the link may lead to any folder of ours, whose files would be trimmed."""
    public, private = tmp_path / "public", tmp_path / "private"
    public.mkdir()
    public.chmod(0o1777)
    private.mkdir(mode=0o700)
    (private / "letters").write_text("dear ..")
    (public / "cache").symlink_to(private)
    give_away(public / "cache")
    assert not kept(public / "cache", monkeypatch)
    assert [path.name for path in private.iterdir()] == ["letters"]


def test_links_in_a_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert not kept(tmp_path / "a", monkeypatch)
    with pytest.raises(OSError, match="symbolic links"):
        open_private(str(tmp_path / "a"))


def test_no_descriptor_is_left_open(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    give_away(tmp_path / "theirs")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("theirs", "theirs/below", "circle", "file", "file/below", "ours"):
        with contextlib.suppress(OSError, NotPrivate):
            os.close(open_private(str(tmp_path / name)))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("path", ["/proc/tsql-cache", "/dev/null", "/dev/null/cache", "/sys/tsql-cache"])
def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    assert not kept(Path(path), monkeypatch)
    assert object_cache._temporary is None and object_cache._notes == [], (
        "nobody is in danger, and nobody needs to know"
    )


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_disk_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """From the start, when there is no key, and later."""
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(error, os.strerror(error))
        return real(path, flags, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert ask().notes == [] and entries(cache) == []
    monkeypatch.setattr(object_cache, "_opened", None)
    ask()
    before = {path: path.read_bytes() for path in entries(cache)}
    monkeypatch.setattr(os, "open", refuse)
    with tsql.connect() as db:
        assert db.sql("SELECT sum(i * 7 + 3) FROM range(10) t(i)").fetchall() == [(345,)]
    flush()
    assert {path: path.read_bytes() for path in entries(cache)} == before


def test_a_folder_that_is_removed_meanwhile(cache: Path) -> None:
    ask()
    for path in cache.iterdir():
        path.unlink()
    cache.rmdir()
    ask()
    assert entries(cache)


def run(cache: Path, *scripts: str) -> list[str]:
    """The output of processes that run at the same time."""
    environment = {**os.environ, "TSQL_CACHE": str(cache), "TSQL_STORED_PLANS": "1", "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for s in scripts
    ]
    outputs = [process.communicate() for process in started]
    assert [(process.returncode, errors) for process, (_, errors) in zip(started, outputs)] == [(0, "")] * len(started)
    return [output.strip() for output, _ in outputs]


ASK = f"""
    import tsql
    from tsql.kernels.codegen import object_cache
    from tsql.kernels.codegen.llvm import compiler
    relation = tsql.connect(threads=1).sql("{QUERY}")
    assert relation.fetchall() == {rows_of_query()}
    told = relation.notes, object_cache._temporary
    print([one.origin for one in compiler()._memory.values()], *told)
"""


def test_processes_that_begin_together_share_a_key(cache: Path) -> None:
    run(cache, ASK, ASK)
    assert all(label_of(path) for path in entries(cache)), "a process went on with a key of its own"
    (said,) = run(cache, ASK)
    assert "llvm" not in said and said.endswith("[] None")


def test_a_temporary_folder_is_gone_with_its_process(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    (said,) = run(cache, ASK)
    path = re.search(r"PosixPath\('(.*)'\)", said).group(1)
    assert "other users can write to" in said and not Path(path).exists()
    assert list(cache.iterdir()) == []


# Keys


@pytest.mark.parametrize("damage", ["readable", "of the group", "another user's", "cut", "longer", "empty", "a link"])
def test_a_key_that_is_not_ours_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch, give_away: Callable[[Path], None], damage: str
) -> None:
    """It is replaced, and entries that were made with it are not run."""
    ask()
    key, known = cache / KEY_FILE, (cache / KEY_FILE).read_bytes()
    match damage:
        case "readable":
            key.chmod(0o644)
        case "of the group":
            key.chmod(0o640)
        case "another user's":
            give_away(key)
        case "cut" | "longer" | "empty":
            key.write_bytes({"cut": known[:-1], "longer": known + b"x", "empty": b""}[damage])
        case "a link":
            key.rename(cache.parent / "key")
            key.symlink_to(cache.parent / "key")
    assert kept(cache, monkeypatch)
    assert {one.origin for one in compiler()._memory.values()} == {"llvm"}
    assert key.read_bytes() != known and not key.is_symlink() and stat.S_IMODE(key.stat().st_mode) == 0o600
    assert kept(cache, monkeypatch)
    assert {one.origin for one in compiler()._memory.values()} == {"disk"}


def test_a_key_that_cannot_be_replaced(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask()
    (cache / KEY_FILE).unlink()
    (cache / KEY_FILE).mkdir()
    assert not kept(cache, monkeypatch)
    assert {one.origin for one in compiler()._memory.values()} == {"llvm"}


# Entries


@pytest.fixture
def stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folder after a query over a table: an entry of each kind that it has."""
    monkeypatch.setenv("TSQL_STORED_PLANS", "1")
    ask(stored=True)
    return {label_of(path)[1]: path for path in entries(cache)}


def test_what_there_is(stored: dict[str, Path]) -> None:
    assert stored.keys() == {"code", "program", "plan"}


def test_changed_entries(stored: dict[str, Path], cache: Path) -> None:
    """Whatever is changed: it is noticed, and written again as it was. Each round changes all entries."""
    whole = {path: path.read_bytes() for path in entries(cache)}
    for seed in range(12):
        random = Random(seed)
        for path, data in whole.items():
            changed = mutate_bytes(data, random)
            path.write_bytes(changed if changed != data else data[:-1])
        ask(stored=True)
        assert {one.origin for one in compiler()._memory.values()} == {"llvm"}, f"seed {seed}"
        assert {path: content_of(path) for path in whole if label_of(path)[1] == "plan"}.keys() == {stored["plan"]}, (
            f"seed {seed}"
        )
    assert {path.name for path in entries(cache)} == {path.name for path in whole}


def test_entries_under_other_names(stored: dict[str, Path], cache: Path) -> None:
    """Each has a good tag, for another name."""
    whole = {path: path.read_bytes() for path in entries(cache)}
    for path, data in zip(whole, [*list(whole.values())[1:], next(iter(whole.values()))]):
        path.write_bytes(data)
    ask(stored=True)
    assert {one.origin for one in compiler()._memory.values()} == {"llvm"}


def test_entries_of_another_folder(
    stored: dict[str, Path], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were made with another key."""
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path / "other"))
    ask(stored=True)
    for path in entries(cache):
        (tmp_path / "other" / path.name).write_bytes(path.read_bytes())
    ask(stored=True)
    assert {one.origin for one in compiler()._memory.values()} == {"llvm"}


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "large"])
def test_entries_that_are_no_files(
    stored: dict[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for path in entries(cache):
        data = path.read_bytes()
        path.unlink()
        match what:
            case "folder":
                path.mkdir()
            case "fifo":
                os.mkfifo(path)
            case "link":
                (cache.parent / path.name).write_bytes(data)
                path.symlink_to(cache.parent / path.name)
            case "large":
                with path.open("wb") as file:
                    file.truncate(object_cache.LARGEST_BYTES + 1)
    ask(stored=True)
    assert {one.origin for one in compiler()._memory.values()} == {"llvm"}


# Contents with a good tag, which only the user can make. Of code that is whole it cannot be told what it does.


@pytest.mark.parametrize("bad", JSON)
def test_programs_and_plans_that_are_none(stored: dict[str, Path], cache: Path, bad: str) -> None:
    good = {path: content_of(path) for path in entries(cache) if label_of(path)[1] != "code"}
    for path in good:
        replace(path, JSON[bad])
    ask(stored=True)
    assert {path: content_of(path) for path in good} == good
    head, _, _ = good[stored["plan"]].partition(b"\n")
    replace(stored["plan"], head + b"\n" + JSON[bad])
    ask(stored=True)
    assert content_of(stored["plan"]) == good[stored["plan"]]


@pytest.mark.parametrize("bad", HEADS)
def test_plans_with_another_head(stored: dict[str, Path], bad: str) -> None:
    good = content_of(stored["plan"])
    head, _, plan = good.partition(b"\n")
    replace(stored["plan"], json.dumps({**json.loads(head), **HEADS[bad]}).encode() + b"\n" + plan)
    ask(stored=True)
    assert content_of(stored["plan"]) == good


@pytest.mark.parametrize("bad", OBJECTS)
def test_objects_that_are_none(stored: dict[str, Path], cache: Path, bad: str) -> None:
    good = {path: ObjectCode.decode(content_of(path)) for path in entries(cache) if label_of(path)[1] == "code"}
    for path, kept_code in good.items():
        wrong = changed_object(kept_code.code, bad)
        assert wrong != kept_code.code
        replace(path, ObjectCode(wrong, kept_code.exports, kept_code.imports).encode())
    ask(stored=True)
    assert {one.origin for one in compiler()._memory.values()} == {"llvm"}
    ask(stored=True)
    assert {one.origin for one in compiler()._memory.values()} == {"disk"}


@pytest.mark.parametrize("bad", HEADS_OF_CODE)
def test_code_with_another_head(
    stored: dict[str, Path], cache: Path, bad: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in entries(cache):
        if label_of(path)[1] == "code":
            replace(path, HEADS_OF_CODE[bad](ObjectCode.decode(content_of(path)).code))
    ask(stored=True)
    assert {one.origin for one in compiler()._memory.values()} == {"llvm"}
    ask(stored=True)
    assert {one.origin for one in compiler()._memory.values()} == {"disk"}


def test_code_that_needs_other_code_without_end(stored: dict[str, Path], cache: Path) -> None:
    """Each entry needs the next one: more of them than Python goes down."""
    code, limit = ObjectCode.decode(content_of(stored["code"])), sys.getrecursionlimit()
    names = [f"{number:064x}" for number in range(1, 200)]
    for name, after in zip(names, names[1:]):
        object_cache.write_later(
            "code", name, ObjectCode(code.code, ("main",), {f"routine_{after}": after}).encode, compiler()._made_by
        )
    flush()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        assert compiler()._loaded(names[0], 0.0) is None
    finally:
        sys.setrecursionlimit(limit)


def test_a_pool_that_is_none(cache: Path) -> None:
    """The pool is linked once in a process, so others look at it."""
    run(cache, ASK)
    (pool,) = (path for path in entries(cache) if label_of(path)[1] == "pool")
    good = content_of(pool)
    for bad in (b"garbage", changed_object(good, "a relocation outside")):
        replace(pool, bad)
        run(cache, ASK)
        assert content_of(pool) == good
