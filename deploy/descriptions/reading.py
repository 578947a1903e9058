"""Reads the text of a description into the data set that it describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

import yaml

from headwater.deploy.descriptions.generated import GenerationPart, generation_of
from headwater.deploy.descriptions.sources import PlacedSourcePart, RawNodePart, RawSourcePart
from headwater.deploy.network.fields import FilePart, Given, Listed
from headwater.deploy.network.mistakes import Flaw, wrong
from headwater.deploy.network.reading import read_part
from headwater.deploy.network.values import TextEntry
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import Scalar
from headwater.pipeline.generate.model import Generation
from headwater.pipeline.prepare.descriptions import Description


class DescriptionPart(FilePart):
    """A data set: raw files, or generated events."""

    WHAT: ClassVar = "the description"

    name: Annotated[Scalar | None, TextEntry("the name")] = None
    about: Annotated[Scalar | None, TextEntry("what it is about")] = None
    sources: Annotated[tuple[RawSourcePart, ...], Listed("sources")] = ()
    node: Annotated[RawNodePart | None, Given()] = None
    generate: Annotated[GenerationPart | None, Given()] = None

    def flaws(self) -> Iterator[Flaw]:
        for other in ("sources", "node"):
            if self.has("generate") and self.has(other) and other not in self.broken:
                yield (other,), wrong(f"{other}: is for raw data", "leave it or generate: out", at_key=True)


class PlacesPart(DescriptionPart):
    """A description in which every source has a node of its own."""

    sources: Annotated[tuple[PlacedSourcePart, ...], Listed("sources")] = ()


def description_of(path: Path) -> Description | Generation:
    """The data set; a ConfigError that lists everything wrong with its description."""
    sheet = Sheet(path, "description of a data set", "sources: with files:, type:, time: and node:")
    root = sheet.root()
    common = any(isinstance(key, yaml.ScalarNode) and key.value == "node" for key, _ in root.value)
    part = read_part(sheet, root, DescriptionPart if common else PlacesPart)
    assert part is not None  # no entry is required
    name, about = str(part.name or path.stem), str(part.about or "")
    if part.has("generate"):
        generation = None if part.generate is None else generation_of(sheet, part.generate, name)
        sheet.finished()
        assert generation is not None
        return replace(generation, about=about)
    if not part.has("sources"):
        sheet.error(0, "the description names no sources", "write sources: and a list of them, or generate:")
    elif not part.sources and not sheet.errors:
        sheet.error(part.at("sources"), "the list of sources is empty", "write at least one")
    sheet.finished()
    return Description(name, tuple(source.build(part.node) for source in part.sources), about)
