"""Descriptions of data sets (YAML): raw files and how their rows become events, or generated events."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final, cast

from headwater.pipeline.generate.model import Generation
from headwater.pipeline.prepare.descriptions import Description
from headwater.protocol.errors import ConfigError

READY_MADE: Final = cast(
    Path, files("headwater.pipeline.prepare") / "data_sets"
)  # in a zip file it is none, and is read alike


def ready_made() -> dict[str, Path]:
    """The descriptions that come with the program, by name."""
    paths = {path.stem: path for path in READY_MADE.iterdir() if path.suffix == ".yaml"}
    return {name: paths[name] for name in sorted(paths)}


def find_description(name: str) -> Path:
    """A file, or a ready-made one by its name."""
    paths = ready_made()
    if name in paths:
        return paths[name]
    path = Path(name)
    if not path.suffix and not path.exists():
        raise ConfigError(
            f"there is no description {name!r}; ready-made are {', '.join(paths)}; or name a file (.yaml)"
        )
    return path


def read_description(path: Path) -> Description | Generation:
    """A description of raw data or of events to be generated; a ConfigError that lists everything wrong with it."""
    from headwater.deploy.descriptions.reading import description_of  # with pydantic, which other commands can spare

    return description_of(path)


def with_seed(generation: Generation, seed: int) -> Generation:
    if not 0 <= seed < 2**63:
        raise ConfigError(f"{seed} is not a seed; write a whole number from 0 on")
    return replace(generation, seed=seed)
