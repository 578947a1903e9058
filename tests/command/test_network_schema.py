"""The JSON schema of network files: it is that of the models, takes every network file we show, and refuses slips."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from headwater.deploy.cli.command import main
from headwater.deploy.network.models.network import NetworkPart
from headwater.deploy.network.schema import kept_schema, made_schema
from headwater.deploy.network.yaml_file import Sheet

PROJECT = Path(__file__).parent.parent.parent
FILES = sorted(
    path
    for path in (PROJECT / "examples").rglob("*.yaml")
    if re.search("^nodes:", path.read_text(encoding="utf-8"), re.MULTILINE)
)
BLOCKS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    if {*re.findall(r"^(\w+):", text, re.MULTILINE)} & {"nodes", "links", "sinks", "sources"}
    and "files:" not in text  # the description of a data set has sources, too
]


def as_an_editor_reads_it(node: yaml.Node) -> Any:
    """The values of a YAML tree by YAML 1.2, where on, off, yes and no are texts."""
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): as_an_editor_reads_it(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [as_an_editor_reads_it(each) for each in node.value]
    assert isinstance(node, yaml.ScalarNode)
    text = str(node.value)
    if node.style is None and text in ("", "~", "null", "true", "false"):
        return {"true": True, "false": False}.get(text)
    if node.style is None and re.fullmatch(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", text):
        return float(text) if re.search("[.eE]", text) else int(text)
    return text


def flaws(path: Path) -> list[str]:
    value = as_an_editor_reads_it(Sheet(path).root())
    return [error.message for error in Draft202012Validator(json.loads(kept_schema())).iter_errors(value)]


def test_the_schema_in_the_package_is_that_of_the_models() -> None:
    assert kept_schema() == made_schema(), "write it anew: python -m headwater.deploy.network.schema > FILE"
    Draft202012Validator.check_schema(json.loads(kept_schema()))
    assert json.loads(kept_schema())["properties"].keys() == set(NetworkPart.allowed_keys())


def test_check_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check", "--schema"])
    assert left.value.code == 0
    assert capsys.readouterr().out == kept_schema()


def test_there_are_files_and_pages_to_check() -> None:
    assert len(FILES) >= 4
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_example_meets_the_schema(path: Path) -> None:
    assert flaws(path) == []


@pytest.mark.parametrize("text", BLOCKS)
def test_every_network_file_of_the_documentation_meets_the_schema(tmp_path: Path, text: str) -> None:
    (tmp_path / "network.yaml").write_text(text, encoding="utf-8")
    assert flaws(tmp_path / "network.yaml") == []


GOOD = """\
events: {Temp: {area: string, value: float?}, Rain: }
nodes: {p1: {listen: "127.0.0.1:7001"}, 007: }
links: [{between: [p1, 007], delay: 5ms, bandwidth: 10Mbit, loss: 1%}]
sources:
  - {node: p1, type: [Temp, Rain], mqtt: "t/{area}", rate: 2/s, values: {area: no, value: {uniform: [0, 60]}},
     time: {from: payload.at, unit: ms}, map: {value: payload.t, area: {constant: A1}}, when: payload.t, qos: 0}
sinks: [{node: p1, subscribe: [Temp], to: {mqtt: fires, qos: 1}}, {node: p1, subscribe: Rain, to: stdout}]
rules:
strategy: inev
duration: 10 min
seed: 7
mqtt: embedded
statistics: {rates: {Temp: 2/s, Rain: {p1: 1/h}}, selectivities: {Fire: {"smoke, temp": 0.05}}, pull: off}
fall_back: off
"""


def test_a_file_with_everything_meets_the_schema(tmp_path: Path) -> None:
    (tmp_path / "network.yaml").write_text(GOOD, encoding="utf-8")
    assert flaws(tmp_path / "network.yaml") == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("links: ", "linsk: "),
        ("delay: 5ms", "deley: 5ms"),
        ("delay: 5ms", "delay: soon"),
        ("[p1, 007]", "[p1]"),
        ("between: [p1, 007], ", ""),
        ("rate: 2/s, values", "rate: 2, values"),
        ("{listen: ", "{lisen: "),
        ("unit: ms", "unit: sec"),
        ("qos: 0", "qos: 2"),
        ("{uniform: [0, 60]}", "{uniform: [0]}"),
        ("{uniform: [0, 60]}", "{unifrom: [0, 60]}"),
        ("to: stdout", "to: stdot"),
        ("strategy: inev", "strategy: inve"),
        ("seed: 7", "seed: [7]"),
        ("fall_back: off", "fall_back: never"),
        ("{p1: 1/h}", "{p1: 1}"),
        ("value: float?", "value: [float]"),
    ],
)
def test_a_slip_is_seen_by_the_schema(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in GOOD
    (tmp_path / "network.yaml").write_text(GOOD.replace(right, wrong), encoding="utf-8")
    assert flaws(tmp_path / "network.yaml") != []


@pytest.mark.parametrize("module", ["headwater.deploy.cli.command", "headwater.node.daemon.process"])
def test_what_reads_no_file_starts_without_pydantic(module: str) -> None:
    code = f"import sys, {module}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=False).returncode == 0
