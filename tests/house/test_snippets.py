"""Every snippet of README and docs does what the page says: programs run, rules parse, commands print what is shown."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.deploy.network.file import read_network
from headwater.node.client import Client
from headwater.protocol.edge import ClientFeed, ClientTo
from headwater.protocol.languages import Source, parse_rules
from tests.kit.patience import patiently
from tests.kit.processes import Cluster, until
from tests.kit.snippets import PROJECT, Snippet, agrees, on_page, snippets

ALL = snippets()
NOT_RUN_MAX = 33  # no more than these can be left out; a new one needs a reason, and one of these to be run instead
FIRE = "{'area': 'A1', 'temperature':"


def of(*kinds: str) -> list[Any]:
    return [pytest.param(snippet, id=str(snippet)) for snippet in ALL if snippet.kind in kinds]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the pages assume it: the files of the example, and the examples."""
    shutil.copytree(PROJECT / "examples", tmp_path / "desk" / "examples")
    shutil.copytree(PROJECT / "examples" / "fire", tmp_path / "desk", dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "desk"


def test_every_snippet_is_run_or_says_why_not() -> None:
    unknown = [str(snippet) for snippet in ALL if snippet.kind == "unknown"]
    assert unknown == [], (
        "say what these are: a language after the fence, or a comment above it (tests/kit/snippets.py)"
    )
    kinds = Counter(snippet.kind for snippet in ALL)
    assert kinds["not run"] <= NOT_RUN_MAX
    assert min(kinds[kind] for kind in ("python", "yaml", "rules", "session", "commands", "output of")) > 0


def test_what_a_page_says_is_compared_line_by_line() -> None:
    assert agrees(["a", "b", "c"], ["a", "..", "c"])
    assert agrees(["a"], ["a", ".."])
    assert not agrees(["a", "b"], ["a"])
    assert not agrees(["a", "x"], ["a", "..", "c"])


def sessions() -> list[Any]:
    pages = dict.fromkeys(snippet.page for snippet in ALL if snippet.kind == "python")
    return [pytest.param(page, id=str(page.relative_to(PROJECT))) for page in pages]


@pytest.mark.parametrize("page", sessions())
def test_programs_run_and_print_what_the_page_says(page: Path, desk: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    printed, everything = "", ""
    for snippet in on_page(page):
        if snippet.kind == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(snippet.text, str(snippet), "exec"), names)
            printed = output.getvalue()
            everything += printed
        elif snippet.kind == "printed":
            as_said = agrees(printed.rstrip("\n").split("\n"), snippet.text.rstrip("\n").split("\n"))
            assert as_said, f"{snippet}: the program printed\n{printed}"
    assert everything.strip(), "programs that print nothing show nothing"


def test_the_program_of_the_readme_finds_what_rules_of_both_languages_say(desk: Path) -> None:
    (snippet,) = [s for s in ALL if s.page.name == "README.md" and s.page.parent == PROJECT and s.kind == "python"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet.text, str(snippet), "exec"), {})
    assert "Fire {'area': 'A1', 'temperature': 51.0}" in printed.getvalue()
    assert "DryFire {'area': 'A1', 'temperature': 51.0}" in printed.getvalue()


@pytest.mark.parametrize("snippet", of("rules"))
def test_rules_parse(snippet: Snippet) -> None:
    source = Source(snippet.text, f"snippet.{snippet.rule_language}", snippet.rule_language)  # type: ignore[arg-type]
    parsed = parse_rules([source])
    assert parsed.rules or parsed.types


@pytest.mark.parametrize("snippet", of("yaml"))
def test_yaml_is_yaml_and_whole_networks_are_right(snippet: Snippet, desk: Path) -> None:
    read = yaml.safe_load(snippet.text)
    assert isinstance(read, dict)
    if {"events", "nodes", "rules"} <= read.keys():
        file = desk / "snippet.yaml"
        file.write_text(snippet.text, encoding="utf-8")
        assert read_network(file).network.nodes


@pytest.mark.parametrize("snippet", of("events"))
def test_events_that_are_shown_are_those_of_the_example(snippet: Snippet, desk: Path) -> None:
    assert agrees((desk / "events.csv").read_text(encoding="utf-8").splitlines(), snippet.text.splitlines())


@pytest.mark.parametrize("snippet", of("session", "commands", "output of"))
def test_commands_print_what_is_shown(snippet: Snippet, desk: Path) -> None:
    for command, said in snippet.commands():
        words = shlex.split(command)
        assert words[0] == "headwater", command
        done = subprocess.run(
            [sys.executable, "-m", "headwater.deploy.cli.command", *words[1:]],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin", "COLUMNS": "120"},
            cwd=desk,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if said or snippet.kind != "commands":
            assert agrees(done.stdout.rstrip("\n").split("\n"), said), done.stdout


# -- programs that need a network --------------------------------------------------------------------------------------


async def _run(code: Any, names: dict[str, Any]) -> None:
    made = eval(code, names)
    if made is not None:
        await made


async def _until_printed(text: str, where: str, names: dict[str, Any], printed: io.StringIO) -> None:
    """Run a snippet to its end, or, if it listens for ever, until it has printed a fire or has listened for a while."""
    code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    start = len(printed.getvalue())
    running = asyncio.create_task(_run(code, names))
    listens, prints = "async for" in text, "print(" in text
    async with patiently():
        while not running.done() and not (prints and FIRE in printed.getvalue()[start:]):
            await asyncio.sleep(0.02 if prints or not listens else 1.0)
            if listens and not prints:
                break
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def _client_page() -> list[Snippet]:
    """The programs that take part in the network of client.md."""
    return [snippet for snippet in ALL if snippet.kind == "with a network" and snippet.language == "python"]


def test_programs_at_a_network_publish_and_hear_what_the_pages_say(tmp_path: Path) -> None:
    (network,) = [s for s in ALL if s.page.name == "client.md" and s.kind == "yaml"]
    (tmp_path / "rooms.yaml").write_text(network.text, encoding="utf-8")
    made = read_network(tmp_path / "rooms.yaml").network
    printed = io.StringIO()
    with Cluster(made, tmp_path / "run", (ClientFeed(), ClientFeed()), (ClientTo("brigade"),)) as cluster:

        def address(node: str) -> str:
            file = cluster.log(node).with_suffix(".address")
            until(file.exists, f"{node} listens", cluster)
            return file.read_text()

        replaced = {
            "tcp://127.0.0.1:22049": address("p3"),
            "tcp://127.0.0.1:22045": address("p1"),
            'network="rooms"': 'network="test"',
            "asyncio.run(main())": "await main()",
        }
        with contextlib.redirect_stdout(printed):
            asyncio.run(_all_at_once(replaced, printed))
    assert "{'area': 'A1', 'temperature': 51.0}" in printed.getvalue()


async def _all_at_once(replaced: dict[str, str], printed: io.StringIO) -> None:
    for snippet in _client_page():
        # All at once: the address that a node really has may be the one that a page shows for another node.
        shown = re.compile("|".join(map(re.escape, replaced)))
        text = shown.sub(lambda found: replaced[found[0]], textwrap.dedent(snippet.text))
        names: dict[str, Any] = {"asyncio": asyncio, "Client": Client, "__name__": "__main__"}
        async with contextlib.AsyncExitStack() as stack:
            for name, listed in (("sensors", 22049), ("brigade", 22045), ("watchman", 22049)):
                if f"{name}." in text and f"as {name}" not in text:
                    at = replaced[f"tcp://127.0.0.1:{listed}"]
                    node = "p3" if listed == 22049 else "p1"
                    names[name] = await stack.enter_async_context(Client(node, at, name=name, network="test"))
            await _until_printed(text, str(snippet), names, printed)
