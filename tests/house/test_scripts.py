"""The scripts find, or make, the Python they need."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"
STAND_IN = '#!/bin/sh\necho {name}: "$@"\n'


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of scripts/fuzz, and a setup that makes an environment whose Python only repeats its arguments."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "fuzz", tmp_path / "scripts" / "fuzz")
    python = STAND_IN.format(name="venv")
    executable(
        tmp_path / "scripts" / "setup",
        "#!/bin/sh\necho set up >&2\nmkdir -p .venv/bin\n"
        f"cat > .venv/bin/python <<'END'\n{python}END\nchmod +x .venv/bin/python\n",
    )
    return tmp_path


def fuzz(project: Path, *arguments: str, python: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    if python is not None:
        environment["PYTHON"] = python
    command = [str(project / "scripts" / "fuzz"), *arguments]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)


def test_fuzz_sets_the_environment_up_if_there_is_none(project: Path) -> None:
    done = fuzz(project, "changes", "--seed", "1")
    assert (done.returncode, done.stdout) == (0, "venv: -m tests.law.fuzz_changes --seed 1\n")
    assert done.stderr == "set up\n"


def test_fuzz_takes_the_python_it_is_given_and_sets_nothing_up(project: Path) -> None:
    executable(project / "given", STAND_IN.format(name="given"))
    done = fuzz(project, "networks", "--count", "3", python=str(project / "given"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "given: -m tests.law.fuzz_networks --count 3\n", "")
    assert not (project / ".venv").exists()


def test_fuzz_does_not_go_on_without_an_environment(project: Path) -> None:
    executable(project / "scripts" / "setup", "#!/bin/sh\necho no Python here >&2\nexit 1\n")
    done = fuzz(project)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "no Python here\n")
