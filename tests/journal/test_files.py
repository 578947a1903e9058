"""Files and folders appear under their names when all of them is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.protocol.files import NewFolder, new_file, write_file


def test_a_file_is_written_and_written_over(tmp_path: Path) -> None:
    file = tmp_path / "it"
    write_file(file, "é\n")
    assert file.read_bytes() == b"\xc3\xa9\n"
    write_file(file, b"\xff", sync=False)
    assert file.read_bytes() == b"\xff"
    assert os.listdir(tmp_path) == ["it"]


def test_a_file_stays_as_it_was_until_the_other_is_there(tmp_path: Path) -> None:
    file = tmp_path / "it"
    write_file(file, "old")
    with new_file(file) as out:
        out.write(b"n")
        out.flush()
        assert file.read_bytes() == b"old"
        out.write(b"ew")
    assert file.read_bytes() == b"new"


def test_a_failure_leaves_the_file_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "it"
    write_file(file, "old")
    with pytest.raises(RuntimeError), new_file(file) as out:  # noqa: PT012
        out.write(b"half of ")
        raise RuntimeError
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["it"]
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "nowhere" / "it", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_file(tmp_path / "folder", "x")
    assert sorted(os.listdir(tmp_path)) == ["folder", "it"]


def test_a_secret_is_never_readable_for_others_whatever_was_there_before(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.with_name(f".secret.{os.getpid()}").write_text("of a process that was killed", encoding="utf-8")
    write_file(file, "other", mode=0o644)
    with new_file(file, mode=0o600) as out:
        assert os.fstat(out.fileno()).st_mode & 0o777 == 0o600
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["secret"]


def test_a_folder_appears_when_it_is_published(tmp_path: Path) -> None:
    target = tmp_path / "above" / "it"
    with NewFolder(target) as fresh:
        (fresh.folder / "a").write_text("1", encoding="utf-8")
        assert not target.exists()
        fresh.publish()
    assert [path.name for path in target.iterdir()] == ["a"]
    with NewFolder(target) as fresh:
        (fresh.folder / "b").write_text("2", encoding="utf-8")
        fresh.publish()
    assert [path.name for path in target.iterdir()] == ["b"]
    with pytest.raises(RuntimeError), NewFolder(target) as fresh:  # noqa: PT012
        (fresh.folder / "c").write_text("3", encoding="utf-8")
        raise RuntimeError
    with NewFolder(target):
        pass  # not published
    assert [path.name for path in target.iterdir()] == ["b"]
    assert os.listdir(tmp_path / "above") == ["it"]
