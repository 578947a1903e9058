"""Remote tables behind providers, in random cases against the oracle, for HEADWATER_REMOTE_SECONDS."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kit.first_seed import first_seed
from tests.law.behind import check_behind, fill
from tests.law.fuzz_remote import run_seeds

SECONDS = 40.0
ONCE_WRONG = (318020321,)


def test_cases_that_once_went_wrong(tmp_path: Path) -> None:
    fill(tmp_path / "elements.db")
    for seed in ONCE_WRONG:
        check_behind(seed, tmp_path / "elements.db")


def test_matches_do_not_depend_on_where_a_table_is(tmp_path: Path) -> None:
    database = tmp_path / "elements.db"
    fill(database)
    seconds = float(os.environ.get("HEADWATER_REMOTE_SECONDS", SECONDS))
    seeds, cases, matches = run_seeds(first_seed(), None, seconds, lambda seed: check_behind(seed, database))
    print(f"{cases} cases of {seeds} seeds, {matches} matches")
    assert matches
