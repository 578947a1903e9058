"""A network file that is as it must be, and what is said about it when a part of it is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.deploy.network.file import NetworkFile, NetworkFileError, read_network

FIRE = "define Fire(area: string)\nfrom Smoke() and last Temp(area = Smoke.area) within 5 min from Smoke\n"
FIRE += "where area = Smoke.area\n"

GOOD = """\
events:
  Smoke: {area: string}
  Temp: {area: string, value: float?}
  Rain: {}
nodes: [p1, p2, p3]
links:
  - {between: [p1, p2], delay: 5ms, bandwidth: 10Mbit, jitter: 200us, loss: 1%}
  - {between: [p2, p3]}
sources:
  - {node: p2, type: Smoke, trace: smoke.csv, lateness: 2s}
  - {node: p3, type: Temp, rate: 2/s, values: {area: {choice: [A1, A2]}}}
sinks:
  - {node: p1, subscribe: "Fire(area = 'A1')"}
rules:
  - fire.tesla
strategy: mt
duration: 10 min
seed: 7
"""


def read(folder: Path, text: str) -> NetworkFile:
    (folder / "network.yaml").write_text(text)
    return read_network(folder / "network.yaml")


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def mistakes(folder: Path, text: str) -> list[str]:
    """``line: message [cure]`` of every mistake."""
    with pytest.raises(NetworkFileError) as raised:
        read(folder, text)
    return [f"{each.line}: {each.message} [{each.hint}]" for each in raised.value.diagnostics]


def warnings(folder: Path, text: str) -> list[str]:
    return [f"{each.line}: {each.message} [{each.hint}]" for each in read(folder, text).warnings]
