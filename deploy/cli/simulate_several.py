"""``headwater simulate --strategy all --seeds N``: several strategies compared over the same events."""

from __future__ import annotations

import json
import time
from pathlib import Path

from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.simulate import refuse_to_overwrite
from headwater.deploy.cli.simulated_run import SimulatedRun, check_feeds, check_functions, difference, perform
from headwater.deploy.network.file import NetworkFile, read_network
from headwater.deploy.reporting.strategies import page, render
from headwater.deploy.simulation.comparison import BASELINE, ComparedStrategy, Comparison, one_run
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.traffic_and_delay import RunFigures, figures
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.text import plural


def simulate_several(
    path: Path,
    strategies: list[str],
    *,
    seed: int | None,
    seeds: int,
    duration_us: int | None,
    check: bool,
    allow_functions: bool,
    chart: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Every strategy over every seed, beside centr; none of them means what the file says.

    The table is printed also where sinks received different things, which then is a RunFailed.
    """
    started = time.perf_counter()
    # What is wrong with the file for every strategy is wrong input; what centr can serve is only not for some of them.
    central = read_network(path, strategy=BASELINE, duration_us=duration_us)
    for warning in central.warnings:
        say(str(warning))
    run = SimulatedRun.of(central, path, seed, check=check)
    check_feeds(run)
    check_functions(run, allowed=allow_functions)
    if chart is not None:
        _check_chart(run, chart)
    chosen = strategies or [read_network(path, duration_us=duration_us).network.strategy]
    work = _Work(path, run, range(run.seed, run.seed + seeds), duration_us)
    comparison, wrong = work.done([BASELINE, *(strategy for strategy in chosen if strategy != BASELINE)])
    if as_json:
        print(json.dumps(comparison.to_json(), ensure_ascii=False))
    elif not quiet:
        print(render(comparison))
    if chart is not None:
        try:
            chart.write_text(page(comparison), encoding="utf-8")
        except OSError as error:
            raise RunFailed(f"cannot write {chart}: {error.strerror or error}") from None
        say(f"the page is {chart}")
    if not quiet:
        say(f"{plural(work.runs, 'run')} took {time.perf_counter() - started:.2f} s")
    if wrong:
        raise RunFailed("\n".join(wrong))


class _Work:
    """The runs, one after the other: for each seed centr first, which all others are compared with."""

    def __init__(self, path: Path, central: SimulatedRun, seeds: range, duration_us: int | None) -> None:
        self._path = path
        self._central = central
        self._seeds = seeds
        self._duration_us = duration_us
        self.runs = 0

    def done(self, strategies: list[str]) -> tuple[Comparison, list[str]]:
        """What came out, and a sentence for each run that did not deliver what centr did."""
        compared = {strategy: ComparedStrategy(strategy) for strategy in strategies}
        files = {strategy: self._file(compared[strategy]) for strategy in strategies}
        total = len(self._seeds) * sum(file is not None for file in files.values())
        wrong: list[str] = []
        for seed in self._seeds:
            base: tuple[Outcome, RunFigures] | None = None
            for strategy, file in files.items():
                here = compared[strategy]
                if file is None or here.why_not is not None:
                    continue
                run = SimulatedRun(file, self._path, strategy, seed, self._central.until_us, self._central.check)
                outcome = self._run(run, here, f"simulating {strategy}, seed {seed} ({self.runs + 1} of {total})")
                if outcome is None:
                    continue
                if base is None:
                    base = outcome, figures(outcome)
                here.runs.append(one_run(seed, figures(outcome), base[1]))
                if (text := difference(run, outcome, base[0])) is not None:
                    here.differs.append(seed)
                    wrong.append(text)
        return Comparison(_name(self._path), tuple(self._seeds), list(compared.values())), wrong

    def _file(self, compared: ComparedStrategy) -> NetworkFile | None:
        if compared.strategy == BASELINE:
            return self._central.file
        try:
            return read_network(self._path, strategy=compared.strategy, duration_us=self._duration_us)
        except HeadwaterError as error:
            compared.why_not = _sentence(error)
            return None

    def _run(self, run: SimulatedRun, compared: ComparedStrategy, label: str) -> Outcome | None:
        """None where the strategy turns out not to serve the network. The baseline must."""
        try:
            outcome = perform(run, run.strategy, label=label)
        except HeadwaterError as error:
            if isinstance(error, RunFailed) or run.strategy == BASELINE:
                raise
            compared.why_not = _sentence(error)
            compared.runs.clear()
            return None
        self.runs += 1
        return outcome


def _sentence(error: HeadwaterError) -> str:
    """The first line of an error: where in a file it is stands below."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _name(path: Path) -> str:
    resolved = path.resolve()
    return resolved.parent.name if resolved.stem == "network" else resolved.stem


def _check_chart(run: SimulatedRun, chart: Path) -> None:
    """Before anything is run: the page can be written, and is written over nothing that is no page."""
    if chart.suffix not in (".html", ".htm"):
        raise ConfigError(f"--chart writes a page; name a file that ends in .html, and not {chart}")
    if not chart.parent.is_dir():
        raise ConfigError(f"cannot write {chart}: there is no folder {chart.parent}")
    refuse_to_overwrite(run, chart)
