"""Commands for a network that runs: rules come and go, subscriptions too, all by ``headwater`` as people call it."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.cli.running_network import in_reading_order
from headwater.deploy.cluster.stop import stop
from tests.kit.fire_folder import FireFolder
from tests.kit.patience import ANSWER_S, output_of, until

HOT = "define Hot(area: string) from Temp(value > 50) where area = Temp.area\n"
PAIR = "SEQ(Hot h, Smoke s) WHERE SAME[area] WITHIN 2 s RETURN Pair(area = s.area)\n"


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Desk(FireFolder):
    """Commands in this process, which has imported everything already; most of them ask a network that runs."""

    def ask(self, *words: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(list(words))
            except SystemExit as left:
                return Said(int(left.code or 0), out.getvalue(), err.getvalue())

    @staticmethod
    def ended(called: subprocess.Popen[str]) -> Said:
        out, err = output_of(called)
        return Said(called.returncode, out, err)

    def __call__(self, *words: str) -> str:
        said = self.ask(*words)
        assert said.code == 0, said
        return said.out

    def refused(self, *words: str, code: int = 2) -> str:
        said = self.ask(*words)
        assert (said.code, said.out) == (code, ""), said
        assert "Traceback" not in said.err
        return said.err

    def lines(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*words).splitlines()]

    def coordinator(self) -> tuple[str, str]:
        """Its HTTP address, and the file of its token."""
        plan = self.run.plan()
        assert plan.token_file is not None
        return str(plan.coordinator().http), plan.token_file


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    try:
        made("up", "fire.yaml")
        yield made
    finally:
        stop(made.run)


@pytest.fixture(autouse=True)
def as_it_was(desk: Desk) -> Iterator[None]:
    """Every test leaves the network with the one rule and the one sink of its file."""
    yield
    if rules := [each["name"] for each in desk.lines("rules", "--json") if each["name"] != "Fire"]:
        desk.ask("undeploy", *rules)
    numbers = [str(each["number"]) for each in desk.lines("subscriptions", "--json") if each["number"]]
    if numbers:
        desk.ask("unsubscribe", *numbers)


def live_rules(desk: Desk) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in desk.lines("rules", "--json") if each["until_us"] is None}


# -- rules -------------------------------------------------------------------------------------------------------------


def test_rules_of_several_files_and_languages_are_deployed_listed_and_undeployed(desk: Desk) -> None:
    said = desk.ask("deploy", desk.write("pair.sase", PAIR), desk.write("hot.tesla", HOT))
    assert said.code == 0, said
    hot, pair = said.out.splitlines()
    assert hot.startswith("Hot is deployed; it holds from 20")
    assert pair.startswith("pair is deployed; it holds from 20")
    assert said.err == "there is no subscription to Pair yet; to see what is found: headwater subscribe Pair\n"

    (found,) = desk.lines("subscribe", "Pair", "--count", "1")
    assert (found["type"], found["rule"]) == ("Pair", "pair")

    header, *rows = desk("rules").splitlines()
    assert header.split() == ["NAME", "VERSION", "EMITS", "READS", "HOLDS", "FROM", "EVALUATED", "AT"]
    assert [row.split()[:4] for row in rows] == [
        ["Fire", "1", "Fire", "Smoke,"],
        ["Hot", "1", "Hot", "Temp"],
        ["pair", "1", "Pair", "Hot,"],
    ]
    assert "the beginning" in rows[0]
    assert {row.split()[-1] for row in rows} <= {"p1", "p2", "p3"}
    assert desk("rules", "pair").startswith("pair: SEQ(Hot h, Smoke s)\n")

    assert desk.refused("undeploy", "Hot") == "headwater: rule 'pair' reads Hot; undeploy that first\n"
    ended = desk("undeploy", "Hot", "pair").splitlines()
    assert [line.split(";")[0] for line in ended] == ["pair is undeployed", "Hot is undeployed"]
    assert all("; it held until 20" in line for line in ended)
    assert list(live_rules(desk)) == ["Fire"]


def test_a_rule_that_is_deployed_is_replaced_only_if_that_is_asked_for(desk: Desk) -> None:
    file = desk.write("hot.tesla", HOT)
    desk("deploy", file)
    assert desk.refused("deploy", file) == (
        "headwater: Hot is deployed already; `headwater deploy --replace hot.tesla` puts the new in the place of the "
        "old, `headwater undeploy Hot` ends it\n"
    )
    since_us = live_rules(desk)["Hot"]["since_us"]
    assert desk("deploy", "--replace", file).startswith("Hot is deployed as it is already; it holds from 20")
    assert live_rules(desk)["Hot"]["since_us"] == since_us
    desk.write("hot.tesla", HOT.replace("50", "55"))
    assert desk("deploy", "--replace", file).startswith("Hot is replaced; version 2 holds from 20")
    assert "value > 55" in desk("rules", "Hot")
    assert live_rules(desk)["Hot"]["since_us"] > since_us


def test_mistakes_in_rules_are_shown_as_check_shows_them_and_nothing_is_deployed(desk: Desk) -> None:
    right, broken = desk.write("hot.tesla", HOT), desk.write("broken.tesla", "define Broken() from Temp(value >) \n")
    assert desk.refused("deploy", right, broken) == desk.refused("check", right, broken)
    wrong = desk.write("wrong.tesla", HOT.replace("value", "valeu"))
    assert desk.refused("deploy", wrong) == (
        "wrong.tesla:1:36: Temp has no attribute 'valeu'\n"
        "    define Hot(area: string) from Temp(valeu > 50) where area = Temp.area\n"
        "                                       ^ did you mean 'value'? Temp has: area, value\n"
    )
    assert "no-such.tesla" in desk.refused("deploy", "no-such.tesla")
    (desk.folder / "latin.tesla").write_bytes(b"define \xe9")
    assert "latin.tesla:1:8: byte 0xe9 is not UTF-8" in desk.refused("deploy", "latin.tesla")
    assert list(live_rules(desk)) == ["Fire"]


def test_names_that_are_not_known_are_said_with_the_nearest(desk: Desk) -> None:
    assert desk.refused("undeploy", "Fyre") == "headwater: no rule 'Fyre' is deployed; did you mean 'Fire'?\n"
    assert "no rule 'Rain' is deployed; there is: Fire" in desk.refused("undeploy", "Rain")
    assert "there is no rule 'Fir'; did you mean 'Fire'?" in desk.refused("rules", "Fir")
    assert "no node 'p9'; there are: p1, p2, p3" in desk.refused("subscribe", "Fire", "--at", "p9")
    assert "unknown event type 'Fyre'" in desk.refused("subscribe", "Fyre")
    assert "unknown event type 'Fyre'" in desk.refused("subscribe", "Fyre", "--to", "file:x")
    assert "there is no subscription 99; there are: 0" in desk.refused("unsubscribe", "99")
    assert "did you mean 'file'? write --to file:PATH" in desk.refused("subscribe", "Fire", "--to", "fiel:x")


def test_what_a_change_led_to_is_told_as_json(desk: Desk) -> None:
    (made,) = desk.lines("deploy", desk.write("hot.tesla", HOT), "--json")
    assert (made["rules"], made["what"], made["holds_from_us"] > 0) == (["Hot"], "deploy Hot", True)
    (subscribed,) = desk.lines("subscribe", "Hot", "--at", "p2", "--to", "file:hot.jsonl", "--json")
    (shown,) = [each for each in desk.lines("subscriptions", "--json") if each["number"]]
    assert shown["number"] == subscribed["subscription"]
    assert (shown["node"], shown["subscribe"], shown["to"]) == ("p2", "Hot", {"file": "hot.jsonl"})
    assert shown["since_us"] == subscribed["holds_from_us"]
    (ended,) = desk.lines("unsubscribe", str(shown["number"]), "--json")
    assert ended["what"] == f"end subscription {shown['number']}"
    (undeployed,) = desk.lines("undeploy", "Hot", "--json")
    assert undeployed["what"] == "undeploy Hot"


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_what_is_found_is_printed_until_enough_was_seen_and_the_subscription_ends(desk: Desk) -> None:
    said = desk.ask("subscribe", "Fire(area = 'A1')", "--at", "p3", "--count", "3")
    assert said.code == 0, said
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [(each["type"], each["attributes"]["area"]) for each in found] == [("Fire", "A1")] * 3
    assert "delivery" not in found[0]
    assert said.err.startswith("p3 delivers Fire(area = 'A1') from 20")
    assert [each["number"] for each in desk.lines("subscriptions", "--json")] == [0]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_user_who_has_seen_enough_stops_and_the_subscription_ends(how: signal.Signals, desk: Desk) -> None:
    listening = desk.start("subscribe", "Temp")
    assert listening.stdout is not None
    first = json.loads(listening.stdout.readline())  # at once, though the output is no terminal
    assert (first["type"], first["node"]) == ("Temp", "p3")
    assert len(desk.lines("subscriptions", "--json")) == 2
    listening.send_signal(how)
    said = desk.ended(listening)
    assert said.code == 0, said
    assert [each["number"] for each in desk.lines("subscriptions", "--json")] == [0]


def test_a_reader_that_leaves_ends_the_subscription(desk: Desk) -> None:
    listening = desk.start("subscribe", "Temp")
    assert listening.stdout is not None
    listening.stdout.readline()
    listening.stdout.close()
    assert desk.ended(listening).code == 0
    assert [each["number"] for each in desk.lines("subscriptions", "--json")] == [0]


def test_for_a_program_with_a_name_everything_waits_and_comes_once(desk: Desk) -> None:
    heard = []
    for _ in range(3):
        heard += desk.lines("subscribe", "Temp", "--as", "desk", "--count", "5")
    (stays,) = [each for each in desk.lines("subscriptions", "--json") if each["number"]]
    assert stays["to"] == {"client": "desk"}
    numbers = sorted(each["seq"] for each in heard)
    assert len(set(numbers)) == 15, "none comes twice"
    assert numbers[-1] - numbers[0] <= 15, "none is left out, but perhaps one that happened together with the last"


def test_a_network_delivers_elsewhere_until_it_is_told_to_end(desk: Desk) -> None:
    file = desk.run.folder / "data" / "p2" / "hot.jsonl"
    said = desk.ask("subscribe", "Temp(value > 50)", "--at", "p2", "--to", "file:hot.jsonl")
    assert said.code == 0, said
    (number,) = [each["number"] for each in desk.lines("subscriptions", "--json") if each["number"]]
    assert said.out.startswith(f"subscription {number}: what ends from 20")
    assert said.out.endswith(" on goes from p2 to file:hot.jsonl\n")
    assert said.err == f"headwater unsubscribe {number} removes it\n"
    until(lambda: file.exists() and file.read_bytes().count(b"\n") >= 3, "the file has three lines")
    _, _, row = desk("subscriptions").splitlines()
    assert row.split()[:4] == [str(number), "p2", "Temp(value", ">"]
    assert "file:hot.jsonl" in row
    assert desk("unsubscribe", str(number)).startswith(f"subscription {number} is ended; it held until 20")
    (until_us,) = [each["holds_from_us"] for each in changes(desk) if each["what"] == f"end subscription {number}"]
    assert all(json.loads(line)["ts"] <= until_us for line in file.read_text().splitlines())


def changes(desk: Desk) -> list[dict[str, Any]]:
    import urllib.request

    with urllib.request.urlopen(f"http://{desk.coordinator()[0]}/plans", timeout=ANSWER_S) as answer:
        found: list[dict[str, Any]] = json.load(answer)["changes"]
    return found


# -- which network -----------------------------------------------------------------------------------------------------


def test_a_network_elsewhere_is_reached_by_the_address_and_the_token_of_its_coordinator(
    desk: Desk, tmp_path: Path
) -> None:
    address, token_file = desk.coordinator()
    away = Desk(tmp_path)
    hot = away.write("hot.tesla", HOT)
    there = ("--coordinator", f"http://{address}")
    assert "needs the token of its coordinator: --token-file" in away.refused("deploy", hot, *there)
    wrong = away.refused("deploy", hot, *there, "--token", "guess")
    assert f"http://{address} does not take this token (from --token, or HEADWATER_TOKEN)" in wrong
    assert away("deploy", hot, *there, "--token-file", token_file).startswith("Hot is deployed")
    assert [each["name"] for each in away.lines("rules", "--json", "--coordinator", address)] == ["Fire", "Hot"]
    (found,) = away.lines("subscribe", "Hot", "--count", "1", *there)
    assert found["type"] == "Hot"
    token = Path(token_file).read_text().strip()
    assert away("undeploy", "Hot", *there, "--token", token).startswith("Hot is undeployed")


def test_a_network_that_cannot_be_reached_is_said_in_a_sentence(desk: Desk, tmp_path: Path) -> None:
    away = Desk(tmp_path)
    assert away.refused("rules") == (
        "headwater: there is no run in .headwater; start one with: headwater up NETWORK.yaml\n"
    )
    assert away.refused("rules", "--coordinator", "127.0.0.1:9", code=1) == (
        "headwater: the coordinator does not answer at http://127.0.0.1:9: Connection refused; is it running, and is "
        "this its --http address?\n"
    )
    node = desk.run.plan().nodes()[0]
    assert "is not a Headwater coordinator" in away.refused("rules", "--coordinator", str(node.http))
    assert "is where nodes reach it" in away.refused("rules", "--coordinator", "tcp://127.0.0.1:7000")
    empty = away.write("empty", "")
    assert "empty holds no token" in away.refused("undeploy", "X", "--coordinator", "h:1", "--token-file", empty)
    assert "leave one out" in away.refused("rules", "--coordinator", "h:1", "--name", "fire")


def test_a_network_that_is_down_is_said(tmp_path: Path) -> None:
    away = Desk(tmp_path)
    away("up", "fire.yaml")
    away("down")
    told = away.refused("deploy", away.write("hot.tesla", HOT))
    assert told.startswith("headwater: fire is not up; start it with: headwater up ")


def test_readers_end_before_what_they_read() -> None:
    rules = [
        {"name": "a", "emits": "A", "reads": ["E"]},
        {"name": "b", "emits": "B", "reads": ["A", "E"]},
        {"name": "c", "emits": "C", "reads": ["B", "A"]},
    ]
    assert list(in_reading_order(["a", "b", "c", "a"], rules)) == ["c", "b", "a"]
    assert list(in_reading_order(["c", "a"], rules)) == ["c", "a"]
