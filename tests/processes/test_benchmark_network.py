"""The network benchmark at tiny sizes: it runs, and its scripted ends neither lose nor invent events."""

from __future__ import annotations

from benchmarks import network, network_relay, network_w1
from benchmarks.network_kit import Line


def test_a_relay_passes_every_event_of_the_feeder_to_the_taker() -> None:
    (run,), payloads = network_relay.relay("sync", 2_000, 1)
    assert run["events"] == 2_000
    assert len(payloads) == 10
    assert network_relay.raw(payloads, 2_000, 1) > 0


def test_a_node_finds_what_the_bare_engine_finds() -> None:
    events, (_, _, matches) = network_w1.engine_alone(5_000, 1)
    (run,) = network_w1.node("none", 5_000, 1)
    assert (run["events"], run["matches"]) == (events, matches)
    assert matches > 0


def test_the_table_tells_which_goals_were_missed() -> None:
    shown = network.table([Line("a", "1/s", "", "2/s", False, "3 events"), Line("b", "4/s", "", "", None, "")])
    assert [line.split("|")[5].strip() for line in shown.splitlines()] == ["reached", "---------", "NO", ""]
