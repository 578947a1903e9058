"""A whole network in virtual time, from a program or a notebook."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cli.output import in_key_order
from headwater.deploy.cli.simulated_run import SimulatedRun, check_functions, difference, perform
from headwater.deploy.network.file import NetworkFile, read_network
from headwater.deploy.network.units import duration_us
from headwater.deploy.simulation.outcome import Delivery
from headwater.deploy.simulation.traffic_and_delay import OVERHEAD_KINDS, RunFigures, figures, render
from headwater.matches import Matches
from headwater.protocol.composites import Composite
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event
from headwater.protocol.network import Network
from headwater.protocol.strategy import CENTRAL, strategy_of
from headwater.protocol.subscriptions import print_subscription

NETWORKS_ACCEPTED: Final = "give the path of a network file, its text or a dict, or what read_network returned"


@dataclass(frozen=True, repr=False)
class Simulated:
    """What a simulated network delivered, and what it cost.

    ``print(result)`` shows the report of ``headwater simulate``; a notebook shows it as tables.
    """

    strategy: str
    seed: int
    events: list[Event]
    """Every event that entered the network, in the order in which they did."""
    deliveries: dict[str, list[Delivery]]
    """What each sink received, in order of arrival, by ``"node: subscription"``. A delivery has ``item`` (a Composite
    or an Event), ``node`` and ``delivered_us``, the virtual time of arrival."""
    figures: RunFigures
    """Traffic by kind and by link, delay, tasks by node; ``figures.to_json()`` is the documented JSON form."""
    warnings: list[str] = field(default_factory=list)
    """What is doubtful but possible in the network file, and where a planner had to fall back."""

    @property
    def matches(self) -> Matches:
        """The composite events that reached sinks, each once."""
        composites = {
            delivery.item.id: delivery.item
            for deliveries in self.deliveries.values()
            for delivery in deliveries
            if isinstance(delivery.item, Composite)
        }
        return Matches(in_key_order(composites.values()))

    @property
    def traffic(self) -> dict[str, dict[str, int]]:
        """Events, messages and bytes that crossed links, by kind of message; kinds that did not occur are left out."""
        return {
            kind: {"events": amount.events, "messages": amount.messages, "bytes": amount.bytes}
            for kind, amount in self.figures.by_kind.items()
            if amount.messages or amount.events or amount.bytes
        }

    @property
    def share_of_centr(self) -> float | None:
        """Bytes over all links (watermarks and control messages left out), divided by those of ``centr`` over the same
        events. None if the run was not compared, or if centr sent nothing."""
        return 1.0 if self.strategy == CENTRAL else self.figures.relative.bytes if self.figures.relative else None

    def __str__(self) -> str:
        return render(self.figures)

    def __repr__(self) -> str:
        share = self.share_of_centr
        parts = [f"{len(self.events):,} events", f"{self.figures.composites:,} composite events delivered"]
        if share is not None and self.strategy != CENTRAL:
            parts.append(f"{share:.1%} of the bytes of centr")
        return f"<Simulated: strategy {self.strategy}, seed {self.seed}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        rows = [
            (f"{kind} (overhead)" if kind in OVERHEAD_KINDS else kind, *(f"{number:,}" for number in amount.values()))
            for kind, amount in self.traffic.items()
        ]
        received = [(sink, f"{len(deliveries):,}") for sink, deliveries in self.deliveries.items()]
        return "".join(
            [
                f"<p>{html.escape(repr(self)[1:-1])}</p>",
                _html_table(("sink", "deliveries"), received),
                _html_table(("traffic over all links", "events", "messages", "bytes"), rows),
            ]
        )


def simulate(
    network: str | os.PathLike[str] | Mapping[str, Any] | NetworkFile,
    *,
    strategy: str | None = None,
    seed: int | None = None,
    duration: str | timedelta | None = None,
    compare: bool = True,
    check: bool = False,
    allow_functions: bool = False,
) -> Simulated:
    """Run a network in virtual time, as ``headwater simulate`` does.

        result = hw.simulate("network.yaml", strategy="mt")
        result.share_of_centr               # 0.58: so much of the bytes that one central node would need
        result.matches.to_pandas()          # what the sinks received

    ``network`` is the path of a network file, the text of one, the same as a dict, or what ``read_network`` returned.
    ``strategy``, ``seed`` and ``duration`` (``"10 min"``, or a timedelta) replace what the network says. Equal seeds
    give equal runs.

    Unless ``compare`` is off, or the strategy is ``centr`` itself, centr (every event to one node) runs over the same
    events, too: figures are then relative to it, and a strategy that delivers anything else is an error. ``check`` has
    checkers watch what nodes promise and keep. ``allow_functions`` runs the Python file that the network names under
    ``functions:``. No event loop is needed, and a running one does not matter.
    """
    if strategy is not None:
        strategy_of(strategy)
    length_us = _duration_us(duration)
    file = _network_file(network, strategy, length_us)
    run = SimulatedRun.of(file, file.path, seed, check=check)
    if run.until_us is not None and run.until_us <= 0:
        raise ConfigError("a run of no duration has no events; give it more, as in duration='10s'")
    check_functions(run, allowed=allow_functions, how="give allow_functions=True")
    outcome = perform(run, run.strategy)
    central = perform(run, CENTRAL) if compare and run.strategy != CENTRAL else None
    if central is not None and (wrong := difference(run, outcome, central)) is not None:
        raise RunFailed(wrong)
    return Simulated(
        run.strategy,
        run.seed,
        outcome.born,
        _by_sink(file.network, outcome.delivered),
        figures(outcome, central),
        [*map(str, file.warnings), *dict.fromkeys(outcome.planner_failures)],
    )


def _network_file(
    network: str | os.PathLike[str] | Mapping[str, Any] | NetworkFile, strategy: str | None, length_us: int | None
) -> NetworkFile:
    match network:
        case NetworkFile() if strategy is None and length_us is None:
            return network
        case NetworkFile(path=path, text=text):
            # Whether another strategy or duration fits is checked where the network is read.
            return read_network(path if text is None else text, strategy=strategy, duration_us=length_us)
        case str() | Mapping():
            return read_network(network, strategy=strategy, duration_us=length_us)
        case os.PathLike():
            return read_network(Path(network), strategy=strategy, duration_us=length_us)
        case Network():
            raise ConfigError(f"a Network alone has no events; {NETWORKS_ACCEPTED}")
        case _:
            raise ConfigError(f"{network!r:.60} is not a network; {NETWORKS_ACCEPTED}")


def _duration_us(duration: str | timedelta | None) -> int | None:
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return None if duration is None else duration_us(duration)


def _by_sink(network: Network, delivered: list[Delivery]) -> dict[str, list[Delivery]]:
    names: list[str] = []
    for sink in network.sinks:
        name = f"{sink.node}: {print_subscription(sink.subscription)}"
        twins = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{twins + 1}" if twins else name)
    by_sink: dict[str, list[Delivery]] = {name: [] for name in names}
    for delivery in delivered:
        by_sink[names[delivery.sink]].append(delivery)
    return by_sink


def _html_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return (
        f"<table><thead>{row(head, 'th')}</thead><tbody>{''.join(row(cells, 'td') for cells in rows)}</tbody></table>"
    )
