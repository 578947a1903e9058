"""Rates and selectivities from a sample of a network's own events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.network.file import read_network
from headwater.deploy.network.planning_problem import statistics_of
from headwater.deploy.network.sampled_statistics import sampled
from headwater.protocol.errors import ConfigError

NETWORK = """
events: {A: {key: int, v: int}, B: {key: int, v: int}}
nodes: [n1, n2, n3]
links: [{between: [n1, n2]}, {between: [n2, n3]}]
sources:
  - {node: n1, type: A, trace: a.csv}
  - {node: n3, type: B, trace: b.csv}
sinks: [{node: n2, subscribe: R}]
rules:
  - |
    Both:
    SEQ(A a, B b) WHERE a.v > 4 AND a.key = b.key WITHIN 5 s RETURN R(key = a.key)
strategy: inev
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two A and one B a second for 100 s; one A in four passes, one B in ten has the key of an A."""
    rows = [f"A,{at * 500_000},{at % 10},{8 if at % 4 == 0 else 1}" for at in range(201)]
    (tmp_path / "a.csv").write_text("type,ts,key,v\n" + "\n".join(rows) + "\n")
    rows = [f"B,{at * 1_000_000},{at * 7 % 10},0" for at in range(101)]
    (tmp_path / "b.csv").write_text("type,ts,key,v\n" + "\n".join(rows) + "\n")
    found = tmp_path / "network.yaml"
    found.write_text(NETWORK)
    return found


def test_rates_and_selectivities_are_counted(file: Path) -> None:
    found = sampled(read_network(file))
    assert found.rates["A"]["n1"] == pytest.approx(2.0, rel=0.01)
    assert found.rates["B"]["n3"] == pytest.approx(1.0, rel=0.02)
    shares = found.selectivities[read_network(file).network.rules[0].name]
    assert shares[frozenset(("a",))] == pytest.approx(0.25, abs=0.05)
    assert shares[frozenset(("a", "b"))] == pytest.approx(0.1, abs=0.03)


def test_what_the_file_says_outweighs_the_sample(file: Path) -> None:
    file.write_text(NETWORK + "statistics: {rates: {A: 7/s}}\n")
    read = read_network(file)
    found = statistics_of(read, sampled(read))
    assert found.rates["A"] == {"n1": 7.0}
    assert found.rates["B"]["n3"] == pytest.approx(1.0, rel=0.02)


def test_a_plan_can_be_made_of_a_sample(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["plan", str(file)])
    assert refused.value.code == 2
    assert "or let --sample count" in capsys.readouterr().err
    with pytest.raises(SystemExit) as done:
        main(["plan", str(file), "--sample", "--json"])
    assert not done.value.code
    plan = json.loads(capsys.readouterr().out)
    assert plan["cost"] <= plan["centralized_cost"]


def test_a_network_without_sources_has_nothing_to_sample(file: Path) -> None:
    file.write_text("events: {A: {v: int}}\nnodes: [n1]\nlinks: []\nsources: []\nsinks: []\nrules: []\n")
    with pytest.raises(ConfigError, match="no events to take a sample of"):
        sampled(read_network(file))
