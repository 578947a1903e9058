"""What a wheel of Headwater holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PACKAGES = ("protocol", "node", "coordinator", "pipeline", "deploy")


def test_every_package_says_that_it_is_typed():
    listed = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert {name.rstrip("*") for name in listed["packages"]["find"]["include"]} == set(PACKAGES)
    for package in PACKAGES:
        assert "py.typed" in listed["package-data"][package]
        assert (PROJECT / package / "py.typed").is_file()


def test_a_wheel_holds_the_packages_their_data_and_that_they_are_typed(tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, project)
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, project / package, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "setuptools" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("there is no index of packages to take setuptools from")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("headwater-*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{package}/py.typed" for package in PACKAGES} <= inside
    expected = {
        str(path.relative_to(PROJECT))
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*")
        if path.is_file() and path.suffix in (".py", ".lark", ".yaml", ".css", ".js", ".properties")
    }
    assert expected - inside == set()
