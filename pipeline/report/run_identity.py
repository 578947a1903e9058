"""Detects records of different runs in one folder, and names them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from headwater.pipeline.report.inputs import Recorded, ReportNote
from headwater.pipeline.report.metrics import Coverage
from headwater.protocol.errors import ConfigError


def chosen_run(run: Recorded, coverage: Mapping[str, Sequence[Coverage]]) -> tuple[str, list[ReportNote]]:
    """The identity of the run that is reported on, and notes on records of others, which are left out.

    Where several are mixed and it is not known which is meant, that is a ConfigError.
    """
    owners: dict[str, list[str]] = defaultdict(list)
    for node, covers in sorted(coverage.items()):
        for cover in covers:
            if cover.run:
                owners[cover.run].append(node)
    expected = run.shape.run
    if not owners or list(owners) == [expected]:
        return expected, []
    if expected not in owners:
        if len(owners) == 1:
            (only,) = owners
            why = f"the records are of the run {only}, not of {expected}, which the coordinator names"
            return only, [ReportNote(run.label, why)] if expected else []
        named = "; ".join(f"{identity}: {', '.join(nodes)}" for identity, nodes in sorted(owners.items()))
        raise ConfigError(
            f"{run.label} holds records of {len(owners)} different runs ({named}), and nothing says which of them is "
            "meant; keep each run in a folder of its own"
        )
    notes = []
    for identity, nodes in sorted(owners.items()):
        if identity != expected:
            notes.append(
                ReportNote(
                    run.label,
                    f"records of another run ({identity}) are mixed in at {', '.join(nodes)}; they are left out. "
                    f"This is the run {expected}",
                )
            )
    silent = sorted(
        set(run.shape.nodes) - set(owners[expected]) - {node for node in run.shape.nodes if node not in coverage}
    )
    if silent:
        notes.append(ReportNote(run.label, f"{', '.join(silent)} has only records of other runs"))
    return expected, notes
