"""``headwater traces``: raw data to event streams by node."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headwater.deploy.cli.common import say
from headwater.deploy.cli.tables import table_lines
from headwater.deploy.descriptions.traces import find_description, read_description, ready_made, with_seed
from headwater.pipeline.generate.model import Generation
from headwater.pipeline.prepare.descriptions import Description
from headwater.pipeline.prepare.prepared_trace import Manifest, check_target, open_prepared
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import plural


def traces(
    description: Annotated[
        str | None,
        typer.Argument(help="A description (.yaml), or the name of a built-in one.", metavar="DESCRIPTION"),
    ] = None,
    input_: Annotated[
        Path | None, typer.Option("--input", help="The folder with the raw files.", metavar="FOLDER")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to create: Parquet by node, and a manifest.", metavar="FOLDER")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="A Spark master. [default: all cores of this machine]", metavar="URL")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing prepared trace.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="A seed for generated events, instead of the description's.", metavar="N")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Instead: count and sum a prepared trace again, and compare with its manifest.", metavar="FOLDER"
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Turn raw data into a prepared trace, with typed events by node, sorted and numbered; or generate one.

    Without a description, the command lists the built-in ones. Descriptions with generate: need no raw data. Rows that
    cannot become events are kept in the folder bad-rows, each with its reason.
    """
    if check is not None:
        if description is not None or out is not None:
            raise ConfigError("--check examines an existing trace; leave out the description and --out")
        _count_again(check, master)
        return
    if description is None:
        _list()
        return
    described = read_description(find_description(description))
    if out is None:
        raise ConfigError("name the folder to make with --out")
    if isinstance(described, Generation):
        if input_ is not None:
            raise ConfigError(f"{described.name} generates its events and reads no files; leave out --input")
        manifest = _generate(
            described if seed is None else with_seed(described, seed), out, master, overwrite=overwrite
        )
    else:
        if input_ is None:
            raise ConfigError("name the folder of the raw data with --input")
        if seed is not None:
            raise ConfigError(
                f"{described.name} is made of files, and a seed changes nothing about them; leave --seed out"
            )
        manifest = _prepare(described, input_, out, master, overwrite=overwrite)
    _warn(manifest, out)
    if json_:
        print(json.dumps(manifest.to_json(), indent=1, ensure_ascii=False))
    else:
        print("\n".join(in_words(manifest, out)))


def _count_again(folder: Path, master: str | None) -> None:
    """Compare a prepared trace with its manifest."""
    from headwater.pipeline.spark.session import spark_session

    trace = open_prepared(folder)
    say("starting Spark")
    with spark_session("traces", master) as spark:
        say(f"counting {trace.manifest.events:,} events")
        trace.check(spark)
    say(f"{folder} holds what its manifest says")


def _generate(generation: Generation, out: Path, master: str | None, *, overwrite: bool) -> Manifest:
    """Make up the events of a description."""
    from headwater.pipeline.generate.generate import generate
    from headwater.pipeline.spark.session import spark_session

    check_target(out, overwrite=overwrite)
    say("starting Spark")
    with spark_session("traces", master) as spark:
        return generate(spark, generation, out, overwrite=overwrite, tell=say).manifest


def _prepare(description: Description, input_: Path, out: Path, master: str | None, *, overwrite: bool) -> Manifest:
    """Turn the raw files of a folder into events."""
    from headwater.pipeline.prepare.traces import check_input, prepare
    from headwater.pipeline.spark.session import spark_session

    check_input(description, input_)
    check_target(out, overwrite=overwrite)
    say("starting Spark")
    with spark_session("traces", master) as spark:
        return prepare(spark, description, input_, out, overwrite=overwrite, tell=say).manifest


def _warn(manifest: Manifest, out: Path) -> None:
    """Say what is odd about a trace, and how many rows became no event."""
    for warning in manifest.warnings:
        say(f"warning: {warning}")
    if manifest.bad_rows:
        say(f"{plural(sum(manifest.bad_rows.values()), 'row')} could not become events; see {out / 'bad-rows'}:")
        for reason, number in manifest.bad_rows.items():
            say(f"  {number:>9,}  {reason}")


def _list() -> None:
    """What is ready-made: what of files, and what needs none."""
    descriptions = [read_description(path) for path in ready_made().values()]
    print("Made of raw files, which are in the folder that --input names:")
    for description in descriptions:
        if not isinstance(description, Generation):
            print(f"  {description.name:<20} {description.about}")
            patterns = ", ".join(pattern for source in description.sources for pattern in source.files.patterns)
            print(textwrap.fill(f"from {patterns}", 110, initial_indent=" " * 25, subsequent_indent=" " * 25))
    print("\nMade up, without files:")
    for description in descriptions:
        if isinstance(description, Generation):
            print(f"  {description.name:<20} {description.about}")
            print(f"{'':<24} about {description.expected():,} events")


def in_words(manifest: Manifest, out: Path) -> Sequence[str]:
    """What a person wants to know of a trace: how much, when, of what, where."""
    span_s = (manifest.last_us - manifest.first_us) / 1e6
    lines = [
        f"{out}: {plural(manifest.events, 'event')} of {plural(len(manifest.types), 'type')} at "
        f"{plural(len(manifest.nodes), 'node')}",
        _when(manifest),
        "",
    ]
    rows: list[Sequence[str]] = []
    for name, totals in manifest.types.items():
        attributes = ", ".join(f"{attribute}: {kind}" for attribute, kind in totals.attributes.items())
        rate = totals.events / span_s * 3600 if span_s else 0.0
        shown = f"{rate:,.1f}" if rate >= 100 else f"{rate:.3g}"
        rows.append((name, f"{totals.events:,}", shown, attributes))
    lines += table_lines(("type", "events", "per hour", "attributes"), rows, figures=(1, 2))
    most = max(manifest.nodes.items(), key=lambda pair: pair[1].events)
    least = min(manifest.nodes.items(), key=lambda pair: pair[1].events)
    if most[1].events == least[1].events:
        lines += ["", f"{plural(most[1].events, 'event')} at every node"]
    else:
        lines += ["", f"most events at {most[0]} ({most[1].events:,}), fewest at {least[0]} ({least[1].events:,})"]
    return lines


def _when(manifest: Manifest) -> str:
    """From when to when: as dates, unless the times do not count from 1970."""
    from headwater.pipeline.prepare.trace_warnings import EARLIEST_US, moment

    span_s = (manifest.last_us - manifest.first_us) / 1e6
    if manifest.last_us >= EARLIEST_US:
        return f"from {moment(manifest.first_us)} to {moment(manifest.last_us)} ({span_s:,.0f} s)"
    first, last = (f"{ts_us / 1e6:,.0f} s" for ts_us in (manifest.first_us, manifest.last_us))
    return f"from {first} to {last} since the data set began ({span_s:,.0f} s)"
