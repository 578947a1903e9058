"""Which tests a change concerns: those that import a changed module, or the nearest ones that import it indirectly.

``./scripts/test quick`` runs them. ``python -m tests.kit.changed`` prints them, nearest first.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
PACKAGES = ("protocol", "node", "coordinator", "pipeline", "deploy")
ALWAYS = ("tests/house/test_layering.py",)
PAGES = ("tests/house/test_docs.py", "tests/house/test_snippets.py")
OTHERS = {"docs": PAGES, "examples": PAGES, "scripts": ("tests/house/test_scripts.py", "tests/house/test_docs.py")}
IMPORT = re.compile(
    r"^[ \t]*(?:from (?P<module>[\w.]+) import (?P<names>\([^)]*\)|[^\n#]*)|import (?P<modules>[^\n#]*))", re.MULTILINE
)
"""Reading all files as syntax takes ten times as long; a sentence that looks like an import chooses a test too many."""
NAME = re.compile(r"(?:^|[(,])\s*([\w.]+)")
FILES_MAX = 16  # more than these take longer to import than the quick loop has
SLOW_ROOMS = (
    "tests/processes/",
    "tests/pipeline/",
)  # processes and Spark: minutes; run when they are changed themselves


def changed_files(project: Path = PROJECT) -> list[str]:
    """Files that differ from main, committed or not, and new ones."""
    base = next(
        (name for name in ("origin/main", "main") if _git(project, "rev-parse", "-q", "--verify", name)), "HEAD"
    )
    since = _git(project, "merge-base", base, "HEAD") or ["HEAD"]
    new = _git(project, "ls-files", "--others", "--exclude-standard")
    return sorted({*_git(project, "diff", "--name-only", since[0]), *new})


def _git(project: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=project, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def module(file: str) -> str:
    """The import name of a file of the project."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"headwater.{name}" if file.startswith(PACKAGES) else name


def importers(project: Path = PROJECT) -> Mapping[str, set[str]]:
    """For each module, the files that import it or a name from it."""
    found: dict[str, set[str]] = defaultdict(set)
    for folder in (*PACKAGES, "tests"):
        for file in sorted((project / folder).rglob("*.py")):
            for name in _imported(file):
                found[name].add(str(file.relative_to(project)))
    return found


def _imported(file: Path) -> Iterator[str]:
    for found in IMPORT.finditer(file.read_text(encoding="utf-8")):
        if found["names"] is None:
            yield from NAME.findall(found["modules"])
        else:
            yield found["module"]
            yield from (f"{found['module']}.{name}" for name in NAME.findall(found["names"]))


def is_test(file: str) -> bool:
    return file.startswith("tests/") and Path(file).name.startswith("test_")


def nearest_tests(file: str, imported_by: Mapping[str, set[str]]) -> set[str]:
    """Test files that import a module; if none does, those that import an importer of it, and so on."""
    seen, now = {file}, {file}
    while now:
        now = {importer for each in now for importer in _importing(each, imported_by)} - seen
        tests = {each for each in now if is_test(each)}
        if tests:
            return tests
        seen |= now
    return set()


def _importing(file: str, imported_by: Mapping[str, set[str]]) -> set[str]:
    """Files that import a module, by its own name or from the package that passes it on."""
    direct = imported_by.get(module(file), set()) - {file}
    packages = {each for each in direct if each.endswith("/__init__.py") and each.startswith(f"{Path(file).parent}/")}
    return direct.union(*(imported_by.get(module(package), set()) for package in packages))


def concerned(changed: Iterable[str], imported_by: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """Test files that changed files concern: those for the quick loop, and those that are left for the whole.

    Changed tests come first, then those that most of the changed modules concern.
    """
    changed = list(changed)
    own = [file for file in changed if is_test(file)]
    near = Counter(ALWAYS)
    for file in changed:
        if file.endswith(".py") and not is_test(file) and file.startswith((*PACKAGES, "tests/")):
            near.update(nearest_tests(file, imported_by))
        near.update(OTHERS.get(file.split("/")[0], PAGES if file.endswith(".md") else ()))
    ranked = sorted(near.keys() - set(own), key=lambda test: (-near[test], test))
    quick = [test for test in ranked if not test.startswith(SLOW_ROOMS)][: max(0, FILES_MAX - len(own))]
    return [*own, *quick], sorted(set(ranked) - set(quick))


def main() -> None:
    chosen, left = concerned(changed_files(), importers())
    if left:
        print(f"{len(left)} files are left for ./scripts/test: {', '.join(left)}", file=sys.stderr)
    print("\n".join(file for file in chosen if (PROJECT / file).exists()))


if __name__ == "__main__":
    main()
