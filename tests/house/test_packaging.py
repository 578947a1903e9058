"""What a wheel of Headwater holds, and what it puts into an empty environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
FOLDERS = ("protocol", "node", "coordinator", "pipeline", "deploy")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from what git would hand out."""
    folder = tmp_path_factory.mktemp("wheel")
    project = folder / "project"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = PROJECT / name, project / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(source.readlink())
            else:
                target.write_bytes(source.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(folder), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "setuptools" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("there is no index of packages to take setuptools from")
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("headwater-*.whl")
    return made


def test_a_wheel_holds_one_package_with_all_its_files(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    outermost = {name.split("/")[0] for name in inside}
    assert {name for name in outermost if not name.endswith(".dist-info")} == {"headwater"}
    assert "headwater/py.typed" in inside
    expected = {
        f"headwater/{path.relative_to(PROJECT).as_posix()}"
        for folder in FOLDERS
        for path in (PROJECT / folder).rglob("*")
        if path.is_file() and path.suffix in (".py", ".lark", ".yaml", ".css", ".js", ".properties")
    }
    assert expected - inside == set()
