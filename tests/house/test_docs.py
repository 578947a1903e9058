"""README and docs hold together: links lead somewhere, files and modules that are named exist, pages stay short."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
PAGES = sorted(
    [
        *PROJECT.glob("*.md"),
        *(PROJECT / "docs").rglob("*.md"),
        *(PROJECT / "examples").rglob("*.md"),
    ]
)
FOLDERS = (
    "benchmarks",
    "coordinator",
    "deploy",
    "docs",
    "examples",
    "headwater",
    "node",
    "pipeline",
    "protocol",
    "scripts",
    "tests",
)
ARCHITECTURE, README = PROJECT / "docs" / "architecture.md", PROJECT / "README.md"
GLOSSARY = PROJECT / "docs" / "glossary.md"

LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
A_PATH = re.compile(rf"(?:\./)?(?:{'|'.join(FOLDERS)})/[\w./*-]*")
A_DOTTED_NAME = re.compile(r"headwater(?:\.\w+)+")
A_MEMBER = re.compile(r"([A-Z]\w*[a-z]\w*)\.([a-z_]\w*)(?:\(.*)?")
PRODUCT = ("coordinator", "deploy", "node", "pipeline", "protocol", "headwater")


def lines(page: Path) -> list[tuple[int, str]]:
    """The lines of a page with their numbers, without fenced blocks and without indented examples."""
    text = FENCED.sub(lambda block: "\n" * block.group().count("\n"), page.read_text(encoding="utf-8"))
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if not line.startswith("    ")]


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    anchors: set[str] = set()
    for _, line in lines(page):
        if line.startswith("#"):
            title = line.lstrip("#").strip().lower().replace("`", "")
            anchors.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return anchors


def broken_links(page: Path) -> Iterator[str]:
    for number, line in lines(page):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                yield f"{page.name}:{number}: there is no {target}"
            elif anchor and anchor not in headings(file):
                yield f"{page.name}:{number}: {path or page.name} has no heading #{anchor}"


def missing_paths(page: Path) -> Iterator[str]:
    """Files and folders in backticks that are not there; a bare module name must be that of some module."""
    modules = {file.name for folder in FOLDERS for file in (PROJECT / folder).rglob("*.py")}
    for number, line in lines(page):
        for text in CODE.findall(line):
            where = f"{page.name}:{number}"
            word = text.split()[0] if text.startswith(("./scripts", "scripts/")) else text
            if A_PATH.fullmatch(word):
                if not list(PROJECT.glob(word.removeprefix("./").rstrip("/"))):
                    yield f"{where}: there is no `{word}`"
            elif re.fullmatch(r"\w+\.py", word) and word not in modules:
                yield f"{where}: there is no module `{word}`"


@cache
def members() -> Mapping[str, frozenset[str]]:
    """By the name of each class of the product, what its bodies define or assign; classes of one name together."""
    names: dict[str, set[str]] = defaultdict(set)
    for folder in PRODUCT:
        for file in (PROJECT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    names[node.name] |= names_in(node)
    return {name: frozenset(defined) for name, defined in names.items()}


def names_in(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.AnnAssign(target=ast.Attribute(attr=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {each.id for each in targets if isinstance(each, ast.Name)}
                names |= {each.attr for each in targets if isinstance(each, ast.Attribute)}
            case ast.alias(name=name, asname=other):
                names.add(other or name)
            case _:
                pass
    return names


def is_defined(dotted: str) -> bool:
    """Whether a name that begins with ``headwater.`` is a package, a module, or something that a module defines."""
    file = PROJECT / "headwater"
    for part in dotted.split(".")[1:]:
        if (file / part).is_dir():
            file = file / part
        elif (file / f"{part}.py").is_file():
            file = file / f"{part}.py"
        elif file.suffix == ".py" or (file / "__init__.py").is_file():
            module = file if file.suffix == ".py" else file / "__init__.py"
            text = module.read_text(encoding="utf-8")
            return part in names_in(ast.parse(text)) or f'"{part}"' in text
        else:
            return False
    return True


def missing_names(page: Path) -> Iterator[str]:
    """Dotted names and members of classes in backticks that the product does not have."""
    for number, line in lines(page):
        for text in CODE.findall(line):
            if A_DOTTED_NAME.fullmatch(text) and not is_defined(text):
                yield f"{page.name}:{number}: there is no `{text}`"
            elif found := A_MEMBER.fullmatch(text):
                name, member = found.groups()
                if name in members() and member not in members()[name]:
                    yield f"{page.name}:{number}: {name} has no `{member}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert list(missing_paths(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_names_of_the_code_that_a_page_mentions_exist(page: Path) -> None:
    assert list(missing_names(page)) == []


def test_every_class_and_function_that_the_architecture_names_exists() -> None:
    """There, unlike on pages about rules, a capitalised name in backticks is a class of ours."""
    text = "\n".join(line for _, line in lines(ARCHITECTURE))
    named = {match.group(1) for span in CODE.findall(text) if (match := A_MEMBER.match(span))}
    assert named
    assert sorted(named - set(members())) == []


def test_the_checks_see_what_is_broken(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One heading\n[a](nowhere.md) [b](#no-heading) [c](#one-heading)\n"
        "`node/nowhere.py` `nowhere.py` `node/core.py` `scripts/test quick`\n"
        "`headwater.node.core.NodeCore` `headwater.node.core.Nowhere` `headwater.nowhere` `headwater.Engine`\n"
        "`NodeCore.handle(input, now_us)` `NodeCore.nowhere(1)` `Smoke.area`\n",
        encoding="utf-8",
    )
    assert len(list(broken_links(page))) == 2
    assert len(list(missing_paths(page))) == 2
    assert len(list(missing_names(page))) == 3


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = {README}, [README]
    while waiting:
        page = waiting.pop()
        for _, line in lines(page):
            for target in LINK.findall(line):
                file = (page.parent / target.partition("#")[0]).resolve()
                if file.suffix == ".md" and file.exists() and file not in reached:
                    reached.add(file)
                    waiting.append(file)
    assert [str(page.relative_to(PROJECT)) for page in PAGES if page not in reached] == []


def test_every_step_of_the_pictures_is_a_module() -> None:
    pictures = "\n".join(FENCED.findall(ARCHITECTURE.read_text(encoding="utf-8")))
    steps = re.findall(r"[\w/]+\.py", pictures)
    assert len(steps) > 30
    assert [step for step in steps if not (PROJECT / step).is_file()] == []
    packages = re.findall(r"\| (\w+)  ", pictures)
    assert {"deploy", "node", "coordinator", "pipeline", "protocol"} <= set(packages)


def test_rooms_that_the_architecture_names_hold_modules() -> None:
    rooms = {text for text in CODE.findall(ARCHITECTURE.read_text(encoding="utf-8")) if A_PATH.fullmatch(text)}
    empty = [room for room in sorted(rooms) if (PROJECT / room).is_dir() and not list((PROJECT / room).rglob("*.py"))]
    assert empty == []


def test_pages_for_a_first_reading_are_short() -> None:
    for page in (ARCHITECTURE, README):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 200, page.name


def test_the_scenario_on_the_page_about_tests_is_the_one_that_runs() -> None:
    page = (PROJECT / "docs" / "testing.md").read_text(encoding="utf-8")
    name = re.search(r"`(tests/scenarios/[\w-]+\.txt)`", page)
    assert name is not None
    assert textwrap.indent((PROJECT / name.group(1)).read_text(encoding="utf-8"), "    ") in page


def test_the_glossary_has_at_most_forty_entries() -> None:
    entries = [line for _, line in lines(GLOSSARY) if line.startswith("| **")]
    assert 0 < len(entries) <= 40
    words = [line.split("**")[1] for line in entries]
    assert words == sorted(words, key=str.lower)
