"""The quick loop runs the tests that a change concerns."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit.changed import PROJECT, changed_files, concerned, importers, module, nearest_tests

IMPORTED_BY = importers()


def quick(*changed: str) -> list[str]:
    return concerned(changed, IMPORTED_BY)[0]


def test_a_changed_module_chooses_the_tests_that_import_it() -> None:
    assert "tests/journal/test_journal.py" in quick("protocol/journal/journal.py")
    assert "tests/edge/test_payload_maps.py" in quick("protocol/payload_maps.py")
    assert "tests/journal/test_journal.py" not in quick("protocol/payload_maps.py")


def test_a_module_that_no_test_imports_chooses_the_nearest_tests() -> None:
    imported_by = {
        "headwater.node.inner": {"node/outer.py"},
        "headwater.node.outer": {"node/face.py", "tests/node/test_outer.py"},
        "headwater.node.face": {"tests/node/test_face.py"},
    }
    assert nearest_tests("node/inner.py", imported_by) == {"tests/node/test_outer.py"}
    assert nearest_tests("node/alone.py", imported_by) == set()


def test_names_that_a_package_passes_on_lead_to_its_modules() -> None:
    assert "tests/engine/test_engine.py" in quick("node/engine/engine.py")
    assert "tests/engine/test_python_face.py" in quick("node/engine/running.py")


def test_every_module_of_the_core_is_near_some_test() -> None:
    files = [str(file.relative_to(PROJECT)) for file in (PROJECT / "node").rglob("*.py") if file.name != "__init__.py"]
    assert [file for file in files if not nearest_tests(file, IMPORTED_BY)] == []


def test_slow_rooms_are_left_for_the_whole_unless_they_change_themselves() -> None:
    chosen, left = concerned(["node/daemon/process.py"], IMPORTED_BY)
    assert not [file for file in chosen if file.startswith("tests/processes/")]
    slow = "tests/processes/test_faults.py"
    assert slow in quick(slow)
    assert slow not in left


@pytest.mark.parametrize("page", ["README.md", "docs/guide/rules.md", "examples/fire/network.yaml"])
def test_pages_and_examples_choose_the_tests_of_pages(page: str) -> None:
    assert {"tests/house/test_docs.py", "tests/house/test_snippets.py"} <= set(quick(page))


def test_modules_have_their_import_names() -> None:
    assert module("node/core.py") == "headwater.node.core"
    assert module("protocol/links/__init__.py") == "headwater.protocol.links"
    assert module("tests/kit/changed.py") == "tests.kit.changed"


def test_files_that_differ_from_main_are_seen(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    (tmp_path / "kept.py").write_text("")
    (tmp_path / "edited.py").write_text("")
    git("add", ".")
    git("commit", "-m", "first")
    git("checkout", "-b", "change")
    (tmp_path / "committed.py").write_text("")
    git("add", ".")
    git("commit", "-m", "second")
    (tmp_path / "edited.py").write_text("1\n")
    (tmp_path / "new.py").write_text("")
    assert changed_files(tmp_path) == ["committed.py", "edited.py", "new.py"]
