"""Replay: two recordings of the same code are equal, and every kind of change is found."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay.__main__ import main
from tests.replay.compare import differences, report
from tests.replay.recording import BadRecording, Entry, Recording
from tests.replay.workload import EVERY, FIXTURES, parts, without_places

ROOT = Path(__file__).resolve().parent.parent.parent
PART = "^default slt/queries/having.slt"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One slt file, recorded by two processes."""
    folder = tmp_path_factory.mktemp("recordings")
    paths = [folder / "a.gz", folder / "b.gz"]
    commands = [[sys.executable, "-m", "tests.replay", "record", str(path), "--only", PART] for path in paths]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait() for process in running] == [0, 0]
    return paths


@pytest.fixture
def recording(files: list[Path]) -> Recording:
    return Recording.read(files[0])


def kinds(a: Recording, b: Recording) -> list[str]:
    return [difference.kind for difference in differences(a, b)]


def test_the_same_code_twice(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert files[0].read_bytes() == files[1].read_bytes()
    assert main(["compare", *map(str, files)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no difference: ")


def test_all_is_recorded(recording: Recording) -> None:
    assert any("scan" in recording.text(entry.plans) for entry in recording.entries)
    kernels = [recording.text(kernel) for entry in recording.entries for kernel in entry.kernels]
    assert kernels and all(kernel.startswith("func @main") for kernel in kernels)
    assert any(entry.message for entry in recording.entries)


def test_a_plan_is_altered(recording: Recording) -> None:
    other = copy.deepcopy(recording)
    entry = next(entry for entry in other.entries if entry.plans)
    entry.plans = [other.keep(other.text(entry.plans).replace("scan", "skip"))]
    text, same = report(recording, other)
    assert kinds(recording, other) == ["plan"] and not same
    assert entry.place in text and "    -" in text and "skip" in text


def test_a_kernel_is_altered(recording: Recording) -> None:
    other = copy.deepcopy(recording)
    entry = next(entry for entry in other.entries if entry.kernels)
    entry.kernels[0][0] = other.keep(other.texts[entry.kernels[0][0]].replace("const 0", "const 77"))
    entry.kernels.sort()
    assert kinds(recording, other) == ["kernel"]
    assert "const 77" in report(recording, other)[0]


def test_a_message_is_altered(recording: Recording) -> None:
    other = copy.deepcopy(recording)
    entry = next(entry for entry in other.entries if entry.message)
    entry.message = None
    assert kinds(recording, other) == ["message"]
    assert "+(no error)" in report(recording, other)[0]


def test_a_query_is_missing(files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording.read(files[0])
    other = copy.deepcopy(recording)
    gone = other.entries.pop()
    assert kinds(recording, other) == ["missing"] and kinds(other, recording) == ["new"]
    other.write(tmp_path / "c.gz")
    assert main(["compare", str(files[0]), str(tmp_path / "c.gz")]) == 1
    assert gone.place in capsys.readouterr().out


def test_lines_may_move(recording: Recording) -> None:
    other = copy.deepcopy(recording)
    for entry in other.entries:
        entry.line += 3
    assert kinds(recording, other) == []


def test_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("no gzip")
    with pytest.raises(BadRecording, match="cannot be read"):
        Recording.read(tmp_path / "text")
    assert main(["compare", str(tmp_path / "text"), str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_equal_texts_of_kernels_in_any_order() -> None:
    texts = ["func @main() {\n}\nfunc @b() {\n}", "func @main() {\n}\nfunc @a() {\n}"]
    kept = [Recording().keep_kernels(order) for order in (texts, texts[::-1])]
    assert kept[0] == kept[1] and len(kept[0]) == 2


def test_folders_of_this_machine_are_left_out() -> None:
    assert without_places(f"scan '{ROOT}/tests/x.csv'") == "scan '<root>/tests/x.csv'"


def test_parts_have_names_of_their_own() -> None:
    names = [part.name for part in parts()]
    assert len(set(names)) == len(names)
    assert {name.split()[0] for name in names} == {"default", *EVERY}


def test_each_fixture_is_there() -> None:
    text = Path(__file__).with_name("fixtures.py").read_text(encoding="utf-8")
    assert all(f"def {name}(recorder: Recorder)" in text for name in FIXTURES)


def test_keys_of_equal_queries() -> None:
    twice = Recording([Entry("f", "default", 1, "SELECT 1"), Entry("f", "default", 9, "SELECT 1")])
    assert [entry.line for entry in twice.by_key().values()] == [1, 9]
