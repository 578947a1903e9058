"""Headwater: complex event processing inside the network that produces the events.

    import headwater as hw

    engine = hw.Engine("fire.tesla")            # rules: a file, or a text
    fires = engine.run(frame)                   # events: dicts, pandas, Polars, Arrow, a file
    fires.to_pandas()                           # results: composite events, or a table

    hw.simulate("network.yaml")                 # a whole network in virtual time, and what it costs

    async with hw.Client("p3", address) as client:      # take part in a running network
        await client.publish("Smoke", {"area": "A1"})

docs/guide/python.md shows all of it. These names are the public API; modules below ``headwater`` may move. A name is
loaded when it is first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headwater.deploy.network.file import NetworkFile, NetworkFileError, read_network
    from headwater.deploy.simulation.outcome import Delivery
    from headwater.engine import Engine, parse_rules, run
    from headwater.matches import Matches
    from headwater.node.client import Client, ClientError
    from headwater.protocol.composites import Composite
    from headwater.protocol.errors import ConfigError, EventError, HeadwaterError, RuleError
    from headwater.protocol.events import Event, EventType
    from headwater.protocol.functions import Functions
    from headwater.protocol.languages import RuleSet, RuleTextError, Source, print_rule
    from headwater.protocol.links import Keys
    from headwater.protocol.pattern import Rule
    from headwater.simulation import Simulated, simulate

    __version__: str

__all__ = [
    "Client",
    "ClientError",
    "Composite",
    "ConfigError",
    "Delivery",
    "Engine",
    "Event",
    "EventError",
    "EventType",
    "Functions",
    "HeadwaterError",
    "Keys",
    "Matches",
    "NetworkFile",
    "NetworkFileError",
    "Rule",
    "RuleError",
    "RuleSet",
    "RuleTextError",
    "Simulated",
    "Source",
    "__version__",
    "parse_rules",
    "print_rule",
    "read_network",
    "run",
    "simulate",
]

_HOMES: Final = {
    "Client": "headwater.node.client",
    "ClientError": "headwater.node.client",
    "Composite": "headwater.protocol.composites",
    "ConfigError": "headwater.protocol.errors",
    "Delivery": "headwater.deploy.simulation.outcome",
    "Engine": "headwater.engine",
    "Event": "headwater.protocol.events",
    "EventError": "headwater.protocol.errors",
    "EventType": "headwater.protocol.events",
    "Functions": "headwater.protocol.functions",
    "HeadwaterError": "headwater.protocol.errors",
    "Keys": "headwater.protocol.links",
    "Matches": "headwater.matches",
    "NetworkFile": "headwater.deploy.network.file",
    "NetworkFileError": "headwater.deploy.network.file",
    "Rule": "headwater.protocol.pattern",
    "RuleError": "headwater.protocol.errors",
    "RuleSet": "headwater.protocol.languages",
    "RuleTextError": "headwater.protocol.languages",
    "Simulated": "headwater.simulation",
    "Source": "headwater.protocol.languages",
    "parse_rules": "headwater.engine",
    "print_rule": "headwater.protocol.languages",
    "read_network": "headwater.deploy.network.file",
    "run": "headwater.engine",
    "simulate": "headwater.simulation",
}
"""The module that each public name comes from. A test compares this table with the imports for type checkers above."""


if not TYPE_CHECKING:  # type checkers would take any name for a public one

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first used (PEP 562)."""
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                value: Any = version("headwater")
            except PackageNotFoundError:  # a checkout that is not installed
                value = "unknown"
        elif name in _HOMES:
            from importlib import import_module

            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module 'headwater' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
