"""The compile cache: object code by fingerprint in memory and on disk. A cache that is damaged, read-only or off costs
time, never an answer."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache_entries import entries, read_code, write_code
from tests.kernels.programs import compiled, interpreted
from tsql.costs import calibrated
from tsql.kernels.codegen import object_cache
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel
from tsql.kernels.codegen.llvm import FULL, QUICK, compiler
from tsql.kernels.codegen.object_cache import cache_directory, flush, write_later
from tsql.planner.cost.constants import DEFAULT


def square_plus(number: int) -> Module:
    """A module of its own for each number."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    k.store(k.params[0], k.params[2] * k.params[2] + number)
    k.ret()
    k.finish()
    return module


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A compiler that remembers nothing, and an empty directory on disk."""
    directory = tmp_path / "kernels"
    compiler().pool()  # its code is no part of what is looked at here
    flush()
    monkeypatch.setenv("TSQL_CACHE", str(directory))
    forget(monkeypatch)
    return directory


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    flush()
    monkeypatch.setattr(compiler(), "_memory", {})


def works(number: int) -> str:
    """The module gives the right answer; returns where its code came from."""
    module = square_plus(number)
    assert compiled(module, FULL) == interpreted(module)
    origin = compiler().compile(module).origin
    flush()
    return origin


def test_memory_then_disk_then_llvm(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert works(1) == "llvm"
    (entry,) = entries(fresh)
    found = compiler().compile(square_plus(1))
    assert compiler().compile(square_plus(1)) is found
    forget(monkeypatch)
    assert works(1) == "disk"
    assert [entry] == entries(fresh)


def test_code_met_on_disk_while_it_is_made_is_linked_once(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = []

    def write_and_meet(kind: str, key: str, make: Callable[[], bytes], made_by: str) -> None:
        write_later(kind, key, make, made_by)
        flush()
        met.append(compiler().known(square_plus(8)))

    monkeypatch.setattr("tsql.kernels.codegen.llvm.write_later", write_and_meet)
    assert compiler().compile(square_plus(8)) is met[0]


def test_a_function_keeps_its_code(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler may let go of code that a kernel still calls: here it forgets it, and other code takes its place."""
    function = compiler().compile(square_plus(9)).function
    compiler()._memory.clear()
    gc.collect()
    for number in range(10, 40):
        works(number)
    found = ctypes.c_int64()
    function(ctypes.addressof(found), 0, 7)
    assert found.value == 58


def test_a_jit_is_followed_by_another(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of an earlier one goes on working, also when nothing but its function is held."""
    monkeypatch.setattr("tsql.kernels.codegen.llvm.LIBRARIES", 2)
    functions, jits = [], []
    for number in range(200, 205):
        functions.append(compiler().compile(square_plus(number), QUICK).function)
        jits.append(compiler()._jit)
    assert len({id(jit) for jit in jits}) >= 2
    jits.clear()
    compiler()._memory.clear()
    gc.collect()
    for number, function in zip(range(200, 205), functions):
        found = ctypes.c_int64()
        function(ctypes.addressof(found), 0, 7)
        assert found.value == 49 + number


def test_levels_and_programs_have_entries_of_their_own(fresh: Path) -> None:
    keys = set()
    for number in (1, 2):
        for level in (QUICK, FULL):
            compiler().compile(square_plus(number), level)
            keys.add(compiler()._key(square_plus(number).fingerprint(), level))
    flush()
    # Queries of earlier tests may still be compiled in full, and are written to where entries are kept now.
    assert len(keys) == 4 and keys <= {entry.name for entry in fresh.iterdir()}


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "garbage", "longer"])
def test_a_damaged_entry_is_written_again(fresh: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    works(3)
    (entry,) = entries(fresh)
    good = entry.read_bytes()
    middle = len(good) // 2
    entry.write_bytes(
        {
            "empty": b"",
            "cut": good[:middle],
            "changed": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
            "garbage": b"x" * 500,
            "longer": good + b"\0",
        }[damage]
    )
    forget(monkeypatch)
    assert works(3) == "llvm"
    assert entry.read_bytes() == good
    forget(monkeypatch)
    assert works(3) == "disk"


def test_an_entry_that_cannot_be_read(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory in its place: neither read nor replaced, and no harm done."""
    works(4)
    (entry,) = entries(fresh)
    entry.unlink()
    entry.mkdir()
    forget(monkeypatch)
    assert works(4) == "llvm"
    assert [entry] == entries(fresh), "a file that could not be moved into place is left behind"


def test_a_directory_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path / "file" / "kernels"))
    forget(monkeypatch)
    assert works(5) == "llvm"


def test_a_read_only_directory(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works(6)
    fresh.chmod(0o555)
    try:
        forget(monkeypatch)
        assert works(6) == "disk"
        assert works(7) == "llvm"
    finally:
        fresh.chmod(0o755)


def test_a_full_disk(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: str, **folders: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert works(8) == "llvm"
    assert entries(fresh) == []


def test_an_empty_setting_turns_the_disk_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TSQL_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget(monkeypatch)
    assert cache_directory() is None
    assert works(9) == "llvm"
    forget(monkeypatch)
    assert works(9) == "llvm"
    assert list(tmp_path.iterdir()) == []


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TSQL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "tsql" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "tsql" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the XDG specification: a relative path is ignored
    assert cache_directory() == tmp_path / ".cache" / "tsql" / "kernels"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number which no file knows."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TSQL_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    forget(monkeypatch)
    assert cache_directory() is None and calibrated() == DEFAULT
    assert works(11) == "llvm"


def test_a_second_process_reads_what_the_first_wrote(fresh: Path) -> None:
    script = textwrap.dedent("""
        from tests.kernels.test_compile_cache import works
        print(works(10))
    """)
    command = [sys.executable, "-c", script]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    runs = [subprocess.run(command, capture_output=True, text=True, check=True, env=env) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["llvm", "disk"]


def test_the_folder_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used longest ago goes: by number of files, and by bytes. Other files stay."""
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    (tmp_path / "orders.parquet").write_bytes(b"not an entry" * 100)
    os.utime(tmp_path / "orders.parquet", (1, 1))
    monkeypatch.setattr("tsql.kernels.codegen.object_cache.MOST_FILES", 8)
    keys = [f"{number:08x}" for number in range(1, 9)]
    for age, key in enumerate(keys):
        write_code(key, b"code " + key.encode())
        os.utime(tmp_path / key, (1000 + age, 1000 + age))
    assert read_code(keys[0]) == b"code 00000001"  # used now
    write_code(f"{0:08x}", b"new")
    assert [p.name for p in entries(tmp_path)] == sorted([f"{0:08x}", keys[0], *keys[4:]])
    monkeypatch.setattr("tsql.kernels.codegen.object_cache.MOST_BYTES", 200)
    write_code(f"{object_cache.TRIM_EVERY:08x}", b"x" * 100)
    assert read_code(f"{object_cache.TRIM_EVERY:08x}") == b"x" * 100
    assert sum(p.stat().st_size for p in entries(tmp_path)) <= 150
    assert (tmp_path / "orders.parquet").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("TSQL_CACHE", str(blocked))
    write_code("00000000", b"code")
    assert read_code("00000000") is None


def test_what_is_written_later_is_there_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    with object_cache._writing:
        write_later("code", "00000001", lambda: b"code")
        write_later("code", "00000002", lambda: None)
        assert read_code("00000001") == b"code" and entries(tmp_path) == []
    write_later("code", "00000001", lambda: b"newer")
    flush()
    assert read_code("00000001") == b"newer" and read_code("00000002") is None
    assert [p.name for p in entries(tmp_path)] == ["00000001"]


def test_an_entry_that_is_replaced_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    write_later("code", "00000001", lambda: (write_later("code", "00000001", lambda: b"newer"), b"code")[1])
    flush()
    assert read_code("00000001") == b"newer"
    flush()
    assert read_code("00000001") == b"newer" and object_cache._waiting == {}


def test_the_folder_is_that_of_the_time_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path / "one"))
    write_later("code", "00000001", lambda: b"code")
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path / "other"))
    assert read_code("00000001") is None
    flush()
    assert [p.name for p in entries(tmp_path / "one")] == ["00000001"] and entries(tmp_path / "other") == []


def test_a_thread_writes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    write_later("code", "00000001", lambda: b"code")
    deadline = time.monotonic() + 60
    while not (tmp_path / "00000001").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read_code("00000001") == b"code"
