"""The benchmark of the pipeline at a tiny size: the commands and the bare jobs go through all that was made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import pipeline


def test_commands_and_bare_jobs_find_every_event_and_match(spark: Any, tmp_path: Path) -> None:
    told: list[str] = []
    found = []
    for race in pipeline.races(spark, tmp_path, 1_000, ["traces", "report"]):
        rounds = pipeline.run_race(spark, race, tmp_path, 1, told.append)  # a wrong count would end it
        found.append((race.name, len(rounds), len(pipeline.summary(race, rounds))))
    assert [name for name, _, _ in found] == [
        "traces, csv",
        "traces, parquet",
        "report, a match for 10 events",
        "report, a match for each event",
    ]
    assert {(rounds, cells) for _, rounds, cells in found} == {(1, 7)}
    sums = {line.partition("checksum=")[2].split()[0] for line in told if "checksum=" in line}
    assert len(sums) == 1  # both forms of the raw files hold the same


def test_a_wrong_count_ends_the_run(spark: Any, tmp_path: Path) -> None:
    pipeline.write_raw(spark, 500, tmp_path)
    race = pipeline._traces(spark, tmp_path / "parquet", "parquet", 7)
    with pytest.raises(pipeline.Wrong, match=r"of the bare job: [0-9]+ instead of 7"):
        pipeline.run_race(spark, race, tmp_path, 1, lambda text: None)
