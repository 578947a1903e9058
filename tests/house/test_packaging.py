"""What a wheel of Headwater holds, and what it puts into an empty environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.kit.snippets import on_page

if sys.platform != "win32":
    import fcntl

PROJECT = Path(__file__).parent.parent.parent
FOLDERS = ("protocol", "node", "coordinator", "pipeline", "deploy")
GUIDE = PROJECT / "docs" / "guide" / "python.md"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The wheel of this checkout, built once for all processes that run tests."""
    if worker_id == "master":
        return _build(tmp_path_factory.mktemp("wheel"))
    folder = tmp_path_factory.getbasetemp().parent / "wheel"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return next(folder.glob("headwater-*.whl"), None) or _build(folder)


def _build(folder: Path) -> Path:
    """A wheel of what git would hand out."""
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


# ------------------------------------------------------------------------------------------------ an empty environment


@dataclass(frozen=True)
class Environment:
    """A virtual environment that holds the wheel and the distributions it depends on, and nothing else."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def contents(self) -> set[str]:
        """What is in it: packages, modules, distributions and commands."""
        listed = [*self.packages.iterdir(), *(self.folder / "bin").iterdir()]
        return {path.relative_to(self.folder).as_posix() for path in listed if path.name != "__pycache__"}

    def add(self, names: Iterable[str]) -> None:
        """Put installed distributions there, with all that they require: links to those of the environment of tests."""
        for each in _required(names):
            for top in {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}:
                target = self.packages / top
                if not target.exists():
                    target.symlink_to(Path(str(each.locate_file(top))))

    def run(self, *arguments: str, cwd: Path) -> str:
        done = subprocess.run(
            [str(self.python), *arguments],
            capture_output=True,
            text=True,
            cwd=cwd,
            env={"PATH": os.defpath, "HOME": str(cwd)},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _required(names: Iterable[str]) -> Iterator[Distribution]:
    """The distributions of these names and, one after the other, whatever they require here."""
    waiting, seen = list(names), set[str]()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        extras = requirement.extras or {""}
        if name in seen or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = distribution(name)
        yield found
        for required in found.requires or ():
            inner = Requirement(required)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                inner.marker = None
                waiting.append(str(inner))


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Environment:
    """The wheel and what it says it depends on; what it added is checked on the way."""
    made = Environment(tmp_path / "environment")
    venv.create(made.folder, symlinks=True, with_pip=False)
    before = made.contents()
    pip = [sys.executable, "-m", "pip", "--python", str(made.python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*pip, str(wheel)], capture_output=True, text=True, check=True)
    added = made.contents() - before
    packages = made.packages.relative_to(made.folder).as_posix()
    version = wheel.name.split("-")[1]
    assert added == {f"{packages}/headwater", f"{packages}/headwater-{version}.dist-info", "bin/headwater"}
    (metadata,) = made.packages.glob("headwater-*.dist-info")
    requires = Distribution.at(metadata).requires or []
    made.add(text for text in requires if "extra ==" not in text)
    return made


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the files that the guide names, outside the project."""
    shutil.copytree(PROJECT / "examples" / "fire", tmp_path / "desk")
    return tmp_path / "desk"


def test_a_wheel_adds_one_package_and_one_command_which_run_with_what_it_depends_on(
    installed: Environment, desk: Path
) -> None:
    program = """
import sys
import headwater as hw
assert not any(name in sys.modules for name in ("node", "protocol", "deploy", "typer", "pandas"))
assert hw.__file__.startswith(sys.prefix), hw.__file__
temp, smoke = {"type": "Temp", "ts": 1, "area": "A1", "value": 50.0}, {"type": "Smoke", "ts": 2, "area": "A1"}
fires = hw.run("fire.tesla", [temp, smoke])
print(len(fires), len(hw.simulate("network.yaml", duration="1 min").events) > 0, hw.Client.__name__, hw.__version__)
for name in ("node", "protocol", "coordinator", "pipeline", "deploy", "tests", "benchmarks"):
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"there is a package {name}")
try:
    fires.to_polars()
except hw.ConfigError as error:
    print(error)
"""
    printed = installed.run("-c", program, cwd=desk).splitlines()
    assert printed[0].startswith("1 True Client ")
    assert printed[1] == "to_polars() needs Polars: pip install polars"
    command = str(installed.folder / "bin" / "headwater")
    assert "Usage: headwater" in installed.run(command, "--help", cwd=desk)
    assert installed.run(command, "--version", cwd=desk).startswith(f"headwater {printed[0].split()[-1]}")
    assert installed.run(command, "run", "fire.tesla", "--events", "events.csv", cwd=desk).count("\n") == 2


SESSION = """
import ast, asyncio, contextlib, inspect, io, json, sys

async def session(cells):
    names, printed = {"__name__": "__main__"}, []
    for cell in cells:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            value = eval(compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.iscoroutine(value):
                await value
        printed.append(output.getvalue())
    shown = eval("result._repr_html_() + fires._repr_html_()", names)
    return printed, shown, [name for name in dir(names["hw"]) if not name.startswith("_")]

print(json.dumps(asyncio.run(session(json.load(open(sys.argv[1]))))))
"""


def test_the_guide_runs_from_the_wheel_cell_by_cell_in_a_running_loop_as_in_a_notebook(
    installed: Environment, desk: Path
) -> None:
    installed.add(["pandas", "polars", "pyarrow"])
    cells = [snippet.text for snippet in on_page(GUIDE) if snippet.kind == "python"]
    (desk / "cells.json").write_text(json.dumps(cells), encoding="utf-8")
    printed, shown, names = json.loads(installed.run("-c", SESSION, "cells.json", cwd=desk))
    assert "Fire 2000000 {'area': 'A1', 'temperature': 51.0}\n" in printed
    assert "<td>p1: Fire</td>" in shown
    assert {"Engine", "Client", "simulate", "read_network", "HeadwaterError"} <= set(names)


USER = """
from collections.abc import Iterator


def alarms(rows: list[dict[str, object]]) -> Iterator[tuple[str, int]]:
    engine = hw.Engine("fire.tesla", types={"Smoke": {"area": "string"}})
    matches: hw.Matches = engine.run(rows)
    for match in matches:
        yield match.type, match.ts
    stream: Iterator[hw.Composite] = engine.run(rows, lateness_us=5)
    found: list[hw.Composite] = engine.feed([hw.Event("Smoke", 1)])
    reveal_type(engine.count(rows))
    reveal_type(matches[0].attributes)
    reveal_type(hw.simulate("network.yaml").share_of_centr)
    reveal_type(hw.__version__)
    print(stream, found)


hw.Engine(5)
hw.Motor
"""


def test_a_program_that_uses_the_wheel_passes_mypy_strict_and_mistakes_are_seen(
    installed: Environment, desk: Path
) -> None:
    installed.add(["polars", "pyarrow"])
    cells = [snippet.text for snippet in on_page(GUIDE) if snippet.language == "python"]
    (desk / "guide.py").write_text("\n".join(cells), encoding="utf-8")
    (desk / "user.py").write_text("import headwater as hw\n" + USER, encoding="utf-8")
    (desk / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-pandas.*,pyarrow.*]\nignore_missing_imports = True\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", str(installed.python), "guide.py", "user.py"],
        capture_output=True,
        text=True,
        cwd=desk,
        env={"PATH": os.defpath, "MYPYPATH": ""},
        check=False,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("guide.py")] == []
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert [text.replace("builtins.", "") for text in revealed] == [
        "dict[str, int]",
        "dict[str, int | float | str | bool | None]",
        "float | None",
        "str",
    ]
    errors = [line for line in lines if ": error: " in line]
    assert len(errors) == 2, done.stdout
    assert "Engine" in errors[0]
    assert '"Motor"' in errors[1]
