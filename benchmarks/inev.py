"""What plans cost beside centralised evaluation and beside another planner's results.

Given a folder of case files (format inev-case-1), plans each of them and prints a line: centralised cost, the other
planner's cost as its file tells it (marked * where an independent check found that plan wrong), ours, that of the
push-pull baseline, ours if events may be pulled, too, the estimate of how cheap a plan could be, and the seconds of
both, without pulling. Without a folder, cases are drawn at random, and the other
planner is the construction of the paper (algorithms 1 and 2) as this project wrote it down. Every plan is checked.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.inev_cases import random_case
from headwater.coordinator.inev.model.case_costs import estimate
from headwater.coordinator.inev.model.case_files import Case, case_from, read_case
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.paper import paper_plan
from headwater.coordinator.inev.search.push_pull import push_pull_plan
from headwater.coordinator.inev.search.search import inev_plan

SIZES = (
    {"nodes": 20, "types": 7, "queries": 1, "exactly": 6},
    {"nodes": 20, "types": 7, "queries": 1, "exactly": 7},
    {"nodes": 20, "types": 8, "queries": 1, "exactly": 8},
    {"nodes": 40, "types": 7, "queries": 1, "longest": 6, "negation": True},
    {"nodes": 20, "types": 10, "queries": 5, "longest": 6},
    {"nodes": 20, "types": 15, "queries": 10, "longest": 6},
    {"nodes": 30, "types": 25, "queries": 10, "longest": 6, "negation": True},
)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    queries: int
    centralised: float
    theirs: float | None
    theirs_valid: bool
    ours: float
    push_pull: float
    pulled: float
    bound: float
    seconds_theirs: float | None
    seconds: float

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None


def row(case: Case, budget_s: float | None, *, drawn: bool) -> Row:
    start = time.perf_counter()
    plan = inev_plan(case.problem, budget_s)
    seconds = time.perf_counter() - start
    centre = centralised(case.problem)
    wrong = faults(plan)
    if wrong or plan.cost > centre.cost * (1 + 1e-9):
        raise SystemExit(f"{case.name}: {wrong or 'dearer than centralised'}")
    push_pull, pulled = push_pull_plan(case.problem), inev_plan(case.problem, budget_s, pull=True)
    wrong = faults(pulled)
    if wrong or pulled.cost > push_pull.cost * (1 + 1e-9):
        raise SystemExit(f"{case.name} with pulling: {wrong or 'dearer than push-pull'}")
    theirs, valid = case.theirs, case.theirs_is_valid
    seconds_theirs = (case.result.get("seconds") or {}).get("planning")
    if drawn:
        start = time.perf_counter()
        theirs, valid = paper_plan(case.problem).cost, True
        seconds_theirs = time.perf_counter() - start
    return Row(
        case.name, len(case.problem.queries), centre.cost, theirs, valid, plan.cost, push_pull.cost, pulled.cost,
        estimate(case.problem), seconds_theirs, seconds,
    )  # fmt: skip


def lines(rows: list[Row]) -> Iterator[str]:
    titles = (
        "case",
        "queries",
        "centralised",
        "theirs",
        "ours",
        "ours/theirs",
        "ours/centr",
        "push-pull",
        "ours, pull",
    )
    yield " ".join(f"{title:>13}" for title in (*titles, "estimate", "s theirs", "s ours"))
    for compared in rows:
        mark = "" if compared.theirs_valid else "*"
        cells = (
            compared.name,
            str(compared.queries),
            f"{compared.centralised:.6g}",
            f"{compared.theirs:.6g}{mark}" if compared.theirs is not None else "-",
            f"{compared.ours:.6g}",
            f"{compared.ratio:.4f}" if compared.ratio is not None else "-",
            f"{compared.ours / compared.centralised:.3g}" if compared.centralised else "-",
            f"{compared.push_pull:.6g}",
            f"{compared.pulled:.6g}",
            f"{compared.bound:.6g}",
            f"{compared.seconds_theirs:.2f}" if compared.seconds_theirs is not None else "-",
            f"{compared.seconds:.2f}",
        )
        yield " ".join(f"{cell:>13}" for cell in cells)
    for title, some in (
        ("one query", [compared for compared in rows if compared.queries == 1]),
        ("several queries", [compared for compared in rows if compared.queries > 1]),
    ):
        ratios = [compared.ratio for compared in some if compared.ratio is not None and compared.theirs_valid]
        if ratios:
            yield f"{title}: ours/theirs {statistics.median(ratios):.4f} in the median, {max(ratios):.4f} at worst"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a folder of case files; without it cases are drawn")
    parser.add_argument("--budget", type=float, help="seconds for each plan")
    parser.add_argument("--drawn", type=int, default=2, help="how many cases of each size are drawn")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.folder is not None:
        files = sorted(options.folder.glob("*.json"))
        if not files:
            raise SystemExit(f"{options.folder} has no case files (*.json)")
        rows = [row(read_case(file), options.budget, drawn=False) for file in files]
    else:
        for at, size in enumerate(SIZES):
            for seed in range(options.drawn):
                case = case_from(random_case(100 * at + seed, **size), "case")  # type: ignore[arg-type]
                rows.append(row(case, options.budget, drawn=True))
    print("\n".join(lines(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
