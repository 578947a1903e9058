"""``headwater plan``: where rules are evaluated, what crosses which links, and what that costs."""

from __future__ import annotations

import json
import math
import time
import traceback
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.coordinator.inev.model.case_costs import estimate
from headwater.coordinator.inev.model.case_files import read_case
from headwater.coordinator.inev.model.latency import LatencyBound, latency
from headwater.coordinator.inev.model.latency_bounds import OFF, USUAL, LatencyTerms
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.plan.description import PlanningOutcome, as_json, in_words
from headwater.coordinator.inev.plan.fallback import with_fall_backs
from headwater.coordinator.inev.plan.plans import Plan
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.planners import DEFAULT, PLANNERS, PlanRequest
from headwater.deploy.cli.common import say
from headwater.deploy.network.file import read_network
from headwater.deploy.network.planning_problem import network_problem
from headwater.deploy.reporting.plan_picture import as_dot, as_svg
from headwater.protocol.errors import ConfigError

PULLING: Final = tuple(planner.name for planner in PLANNERS.values() if planner.may_pull)

CASE_SUFFIX: Final = ".json"


def plan(
    file: Annotated[Path, typer.Argument(help="A network file, or a case file (.json).", metavar="NETWORK|CASE.json")],
    planner: Annotated[str, typer.Option(help=f"One of {', '.join(PLANNERS)}.", metavar="PLANNER")] = DEFAULT.name,
    json_: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    dot: Annotated[bool, typer.Option("--dot", help="Print the plan for Graphviz.")] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Draw the plan on the network, into this file.", metavar="FILE")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Stop with the best plan that a typical machine finds in this many seconds. Steps are counted, not "
            "time, so that equal budgets give equal plans.",
            metavar="SECONDS",
        ),
    ] = None,
    pull: Annotated[
        bool | None,
        typer.Option(
            "--pull/--no-pull",
            help="Allow events to stay at their sources until a task pulls them, where that is cheaper. "
            "[default: yes for network files, no for case files]",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample", help="Measure rates and selectivities in the network's own traces, where none are given."
        ),
    ] = False,
    statistics: Annotated[
        Path | None,
        typer.Option(
            help="The output of headwater statistics; values in the network file take precedence.",
            metavar="FILE",
        ),
    ] = None,
    latency_bound: Annotated[
        str | None,
        typer.Option(
            help="The greatest latency of a plan: off, centr (that of centralised evaluation), 3x (three times that) "
            f"or a number. [default: that of the network file, or else {USUAL}; off for a case file]",
            metavar="BOUND",
        ),
    ] = None,
    latency_factor: Annotated[
        float | None,
        typer.Option(
            help="The weight of work at a node relative to a hop. [default: that of the network file, or else 1]",
            metavar="FACTOR",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal plans.", metavar="N")] = 0,
) -> None:
    """Plan where rules are evaluated, so that as little as possible crosses the network.

    For a network file, rates are those of its sources or of its section statistics, and every cost includes delivery to
    the sinks. A case file contains rates and selectivities, and its format defines costs.

    Prints the cost of the plan relative to centralised evaluation, and for each query what is evaluated where, what
    travels, and why.
    """
    if planner not in PLANNERS:
        raise ConfigError(f"unknown planner {planner!r}; planners are {', '.join(PLANNERS)}")
    if json_ and dot:
        raise ConfigError("--json and --dot both print the plan; ask for one of them (--svg FILE goes with either)")
    if budget is not None and not 0 < budget < math.inf:
        raise ConfigError(f"a budget of {budget:g} seconds leaves no time; write a number above 0")
    is_case = file.suffix.lower() == CASE_SUFFIX
    if pull is not None and planner not in PULLING:
        raise ConfigError(
            f"--pull and --no-pull are for the planners {' and '.join(PULLING)}; leave the option out, or {planner}"
        )
    if is_case and statistics is not None:
        raise ConfigError("a case file brings its own statistics; --statistics is for network files")
    problem, terms, usually = _case_problem(file) if is_case else _network_problem(file, sample, statistics)
    terms = LatencyTerms(
        terms.bound if latency_bound is None else latency_bound,
        terms.factor if latency_factor is None else latency_factor,
    )
    pulls = planner in PULLING and (usually if pull is None else pull)
    outcome = planned(problem, planner, budget, terms, seed, pull=pulls)
    for warning in outcome.warnings:
        say(f"warning: {warning}")
    if svg is not None:
        try:
            svg.write_text(as_svg(outcome.plan), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {svg}: {error.strerror}") from None
    if json_:
        print(json.dumps(as_json(outcome, numbers=is_case), indent=1))
    elif dot:
        print(as_dot(outcome.plan))
    else:
        for line in in_words(outcome):
            print(line)


def _case_problem(file: Path) -> tuple[Problem, LatencyTerms, bool]:
    return read_case(file).problem, LatencyTerms(OFF), False


def _network_problem(file: Path, sample: bool, statistics: Path | None) -> tuple[Problem, LatencyTerms, bool]:
    """The problem, how slow plans may be, and whether they may pull."""
    network_file = read_network(file, statistics=statistics)
    for warning in network_file.warnings:
        if network_file.statistics.file is not None and warning.file == str(network_file.statistics.file):
            say(str(warning))
    section = network_file.statistics
    if not sample:
        return network_problem(network_file), section.latency, section.pull
    from headwater.deploy.network.sampled_statistics import sampled

    return network_problem(network_file, sampled(network_file)), section.latency, section.pull


def planned(
    problem: Problem, planner: str, budget_s: float | None, terms: LatencyTerms, seed: int, *, pull: bool
) -> PlanningOutcome:
    """Plans, and compares with centralised evaluation."""
    centre = centralised(problem)
    central_latency = latency(centre, terms.factor)
    limit = terms.limit(central_latency)
    start = time.perf_counter()
    bound = None if limit is None else LatencyBound(limit, terms.factor)
    failed = None
    try:
        best = _checked(PLANNERS[planner].plan(PlanRequest(problem, budget_s, bound, seed, pull)))
    except ConfigError:
        raise
    except Exception as error:
        best, failed = centre, _failed(planner, error)
    seconds = time.perf_counter() - start
    exact = PLANNERS[planner].is_exact and failed is None
    return PlanningOutcome(
        plan=best,
        centralised=centre,
        lower_bound=best.cost if exact else estimate(problem),
        lower_bound_is="bound" if exact else "estimate",
        latency=latency(best, terms.factor),
        latency_bound=limit,
        centralised_latency=central_latency,
        latency_factor=terms.factor,
        seconds=seconds,
        failed=failed,
    )


def _checked(plan: Plan) -> Plan:
    """The plan with fall-backs and with rates as precise as may be. AssertionError if it would not find everything."""
    if PLANNERS[plan.planner].falls_back:
        plan = with_fall_backs(plan)
    plan = plan.refined()
    wrong = faults(plan)
    assert not wrong, "; ".join(wrong)
    return plan


def _failed(planner: str, error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}: {error}"
    return f"the planner {planner} failed (a bug: {where}); this is centralised evaluation, which always works"
