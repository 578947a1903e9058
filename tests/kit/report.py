"""Tables of reports, made on Spark and by this process alone, which must say the same in every cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.report.inputs import Recorded
from headwater.pipeline.report.job import report_tables
from headwater.pipeline.report.tables import KINDS, Tables


def tables_of(spark: Any, runs: Sequence[Recorded], *, trace: PreparedTrace | None = None) -> Tables:
    """The tables as Spark makes them; they are those that are made without it."""
    found = report_tables(spark, runs, trace=trace)
    assert_same_tables(found, report_tables(None, runs, trace=trace))
    return found


def assert_same_tables(one: Tables, other: Tables) -> None:
    """Row by row and cell by cell; numbers that are not whole up to how sums are rounded."""
    for name, columns in KINDS.items():
        if name == "groups":  # made of the runs
            continue
        assert len(one[name]) == len(other[name]), name
        for ours, theirs in zip(one[name], other[name], strict=True):
            for column, kind in columns.items():
                here, there = ours[column], theirs[column]
                same = here == there and type(here) is type(there)
                if kind == "float" and None not in (here, there):
                    same = math.isclose(here, there, rel_tol=1e-9, abs_tol=1e-12)
                assert same, f"{name}.{column} of {ours}: {here!r} on Spark, {there!r} without"
