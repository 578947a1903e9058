"""Functions of a user's Python file in a network file: read without being run, and run only where that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.deploy.cli.command import main
from headwater.deploy.network.file import NetworkFileError, read_network
from headwater.protocol.errors import ConfigError
from headwater.protocol.function_files import digest_of, digests_of
from tests.command.network_texts import FIRE, GOOD, changed, mistakes

FUNCTIONS = """\
from pathlib import Path

Path(__file__).with_name("was_run").touch()


def danger(value, area):
    if value > 90:
        raise ValueError("nobody has survived that")
    return value * 2 + len(area)


def _own(value):
    return value
"""
RATED = GOOD.replace("trace: smoke.csv, lateness: 2s", "rate: 1/s, values: {area: {choice: [A1, A2]}}").replace(
    "{area: {choice: [A1, A2]}}}\nsinks", "{area: {choice: [A1, A2]}, value: {uniform: [0, 100]}}}\nsinks"
)
CALLING = FIRE.replace("Temp(area", "Temp(danger(value, area) > 120, area")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text(FUNCTIONS)
    (tmp_path / "fire.tesla").write_text(CALLING)
    (tmp_path / "network.yaml").write_text(f"functions: f.py\n{RATED.replace('10 min', '1 min')}")
    return tmp_path


def test_the_hash_of_the_file_is_in_the_rules_and_the_file_is_not_run(folder: Path) -> None:
    network = read_network(folder / "network.yaml").network
    assert network.functions is not None
    assert network.functions.digest == digest_of(FUNCTIONS.encode())
    assert [(each.name, each.parameters) for each in network.functions.functions] == [("danger", 2)]
    assert digests_of(network.rules) == {network.functions.digest}
    assert not (folder / "was_run").exists()


def test_check_shows_the_functions_and_runs_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", str(folder / "network.yaml")])
    out = capsys.readouterr().out
    assert ended.value.code in (0, None), out
    assert f"functions of f.py: danger; hash {digest_of(FUNCTIONS.encode())[:12]}, not run here" in out
    assert not (folder / "was_run").exists()


@pytest.mark.parametrize("words", [["simulate"], ["simulate", "--strategy", "st,mt"], ["up"]])
def test_functions_are_not_run_unless_that_is_allowed(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main([words[0], "network.yaml", *words[1:]])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert f"f.py (hash {digest_of(FUNCTIONS.encode())[:12]}), which is Python code; add --allow-functions" in err
    assert not (folder / "was_run").exists()
    assert not (folder / ".headwater").exists()


def test_a_network_without_calls_needs_no_permission(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE)
    assert hw.simulate(folder / "network.yaml").events
    assert not (folder / "was_run").exists()


def test_simulations_call_them_under_every_strategy_and_say_which_calls_failed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(folder / "network.yaml"), "--strategy", "mt", "--allow-functions"])
    told = capsys.readouterr()
    assert ended.value.code in (0, None), told.err
    assert "failed: ValueError: nobody has survived that; it has no value there" in told.err
    found = hw.simulate(folder / "network.yaml", strategy="inev", allow_functions=True)
    assert found.matches
    with pytest.raises(ConfigError, match="give allow_functions=True if you trust that file"):
        hw.simulate(folder / "network.yaml")


def test_a_file_that_changes_after_it_was_read_is_not_run(folder: Path) -> None:
    (folder / "f.py").write_text(f"{FUNCTIONS}\n# one\n")
    read = read_network(folder / "network.yaml")
    (folder / "f.py").write_text(f"{FUNCTIONS}\n# another\n")
    with pytest.raises(ConfigError, match="has changed since the network file was read"):
        hw.simulate(read, allow_functions=True)


def test_sinks_may_call_functions(folder: Path) -> None:
    text = (folder / "network.yaml").read_text().replace("Fire(area = 'A1')", "Temp(danger(value, area) > 150)")
    (folder / "network.yaml").write_text(text)
    (folder / "fire.tesla").write_text(FIRE)
    found = hw.simulate(folder / "network.yaml", strategy="mt", allow_functions=True)
    (received,) = found.deliveries.values()
    assert list(found.deliveries) == ["p1: Temp(danger(value, area) > 150)"]
    assert received
    values = [delivery.item.attributes["value"] for delivery in received]
    assert all(isinstance(value, float) and 74 < value <= 90 for value in values)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("g.py", None, "1: cannot read g.py: No such file or directory [it is looked for beside this file]"),
        ("f.txt", "", "1: f.txt is not a Python file [write the name of one, as in my_functions.py]"),
        ("g.py", "x = 1\n", "g.py offers no functions: define some, or a dict FUNCTIONS"),
        ("g.py", "\ndef a(:\n", "g.py:2: this is not Python: invalid syntax"),
        ("g.py", "\0", "this is not Python"),
        ("g.py", "def a(x): return x\nFUNCTIONS = dict(a=a)\n", "g.py:2: FUNCTIONS must be written out"),
        ("g.py", "def abs(x): return x\n", "there is already a function 'abs'"),
        ("g.py", "def sum(x): return x\n", "a function cannot be called 'sum'"),
    ],
)
def test_a_file_that_offers_no_functions_is_an_error_at_its_line(
    folder: Path, file: str, text: str | None, said: str
) -> None:
    if text is not None:
        (folder / file).write_text(text)
    (folder / "fire.tesla").write_text(FIRE)
    (found, *_) = mistakes(folder, f"functions: {file}\n{RATED}")
    assert found.startswith("1: ")
    assert said in found


def test_calls_are_checked_against_the_file(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE.replace("Temp(area", "Temp(danger(value) > 3, area"))
    (found,) = mistakes(folder, f"functions: f.py\n{RATED}")
    assert found == "2: danger takes 2 arguments, not 1 [danger(any, any)]"
    (folder / "fire.tesla").write_text(FIRE.replace("Temp(area", "Temp(dangre(value, area) > 3, area"))
    (found,) = mistakes(folder, f"functions: f.py\n{RATED}")
    assert found.startswith("2: unknown function 'dangre' [did you mean 'danger'?")


def test_what_is_decorated_varies_and_what_is_listed_counts(folder: Path) -> None:
    (folder / "f.py").write_text(
        "import functools\nif True:\n    def one(x, y=2): return x\n"
        "@functools.cache\ndef two(x): return x\ndef three(x): return x\n"
        'FUNCTIONS: dict = {"uno": one, "due": two, "tre": three, "quattro": lambda x: x}\n'
    )
    (folder / "fire.tesla").write_text(FIRE)
    functions = read_network(folder / "network.yaml").network.functions
    assert functions is not None
    assert [(each.name, each.parameters) for each in functions.functions] == [
        ("uno", None), ("due", None), ("tre", 1), ("quattro", None),
    ]  # fmt: skip


def test_a_call_without_a_file_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "fire.tesla").write_text(CALLING)
    (tmp_path / "network.yaml").write_text(changed("trace: smoke.csv", "rate: 1/s, values: {area: A1}"))
    with pytest.raises(NetworkFileError, match="unknown function 'danger'"):
        read_network(tmp_path / "network.yaml")
