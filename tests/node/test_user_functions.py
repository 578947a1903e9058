"""What a node runs of a user's file: the file whose hash the plan names, if the node was started so that it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.node.effects import Report
from headwater.node.step import Work
from headwater.node.tasks.rule_failures import NOTED
from headwater.node.user_functions import CallFailed, NodeFunctions, guarded, offer_file
from headwater.protocol.function_files import DescribedFunctions, described, digest_of
from headwater.protocol.functions import Functions, FunctionsMissing, in_file, is_offered

PLACE = Path("f.py")


def a_file(folder: Path, text: str) -> DescribedFunctions:
    file = folder / "f.py"
    file.write_text(text)
    return described(text.encode(), str(file))


def test_a_node_that_may_not_run_functions_says_so_and_what_to_do(tmp_path: Path) -> None:
    network = a_file(tmp_path, "def one(x): raise SystemExit\nboom = 1 / 0\n")
    why = NodeFunctions(tmp_path, allowed=False).refusal(network)
    assert "not started with --allow-functions" in why
    assert network.digest[:12] in why
    assert "start it with --allow-functions if you trust that file" in why
    assert not is_offered(network.digest)


def test_a_node_with_another_file_names_both_hashes(tmp_path: Path) -> None:
    network = a_file(tmp_path, "def two(x): return x\n")
    other = "def two(x): return -x\n"
    (tmp_path / "f.py").write_text(other)
    why = NodeFunctions(tmp_path, allowed=True).refusal(network)
    assert digest_of(other.encode())[:12] in why
    assert network.digest[:12] in why
    assert "copy the file of the coordinator's machine there and start the node again" in why
    assert not is_offered(network.digest)
    assert not is_offered(digest_of(other.encode()))


def test_a_node_without_the_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    network = a_file(tmp_path, "def three(x): return x\n")
    elsewhere = tmp_path / "elsewhere.py"
    why = NodeFunctions(tmp_path, allowed=True, file=elsewhere).refusal(network)
    assert f"cannot read the functions in {elsewhere}: No such file" in why
    elsewhere.write_bytes((tmp_path / "f.py").read_bytes())
    assert NodeFunctions(tmp_path, allowed=True, file=elsewhere).refusal(network) == ""


def test_a_file_that_cannot_be_loaded_is_a_refusal(tmp_path: Path) -> None:
    network = a_file(tmp_path, "def four(x): return x\nraise ImportError('no such thing')\n")
    assert "cannot be loaded: ImportError: no such thing" in NodeFunctions(tmp_path, allowed=True).refusal(network)


def test_a_node_goes_on_with_the_file_of_its_plan_when_that_was_changed_since(tmp_path: Path) -> None:
    network = a_file(tmp_path, "def five(x): return x + 5\n")
    assert NodeFunctions(tmp_path / "data", allowed=True).refusal(network) == ""
    forget(network.digest)
    (tmp_path / "f.py").write_text("def five(x): return 0\n")
    later = NodeFunctions(tmp_path / "data", allowed=True)
    later.offer_kept()
    assert later.refusal(network) == ""
    function = Functions().get(in_file("five", network.digest))
    assert function is not None
    assert function.call(1) == 6


def test_a_copy_that_was_tampered_with_is_not_run(tmp_path: Path) -> None:
    network = a_file(tmp_path, "def six(x): return x\n")
    assert NodeFunctions(tmp_path / "data", allowed=True).refusal(network) == ""
    forget(network.digest)
    (copy,) = (tmp_path / "data" / "functions").iterdir()
    copy.write_text("raise SystemExit\n")
    NodeFunctions(tmp_path / "data", allowed=True).offer_kept()
    assert not is_offered(network.digest)


def test_rules_whose_functions_are_not_loaded_are_not_evaluated() -> None:
    with pytest.raises(FunctionsMissing, match="start the node with --allow-functions"):
        Functions().get(in_file("seven", "0" * 64))


def test_a_call_that_fails_has_no_value_and_is_noted() -> None:
    digest = offer_file(b"def eight(x):\n    if x:\n        raise KeyError(x)\n    return []\n", PLACE)
    function = Functions().get(in_file("eight", digest))
    assert function is not None
    work = NOTED.step = Work(0, {}, {})
    try:
        assert function.call(1) is None
        assert function.call(0) is None
    finally:
        NOTED.step = None
    (report,) = work.failures.reports()
    assert isinstance(report, Report)
    assert (report.counter, report.count, report.rule) == ("rule_errors", 2, "function eight")
    assert report.sentence.startswith("function eight(0) returned a list; it may return an int")


def test_values_that_could_not_travel_become_plain_ones() -> None:
    class Odd(float):
        pass

    class Word(str):
        __slots__ = ()

    assert type(guarded("f", lambda: Odd(2.5))()) is float
    assert type(guarded("f", lambda: Word("x"))()) is str
    assert guarded("f", lambda: True)() is True
    with pytest.raises(CallFailed, match=r"f\('x{100,200}\.\.\) failed: ZeroDivisionError"):
        guarded("f", lambda x: 1 / 0)("x" * 1000)


def forget(digest: str) -> None:
    from headwater.protocol import functions

    del functions._OFFERED[digest]
