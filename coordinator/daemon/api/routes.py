"""Every route of the API, once: the server serves this table and the OpenAPI description is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.coordinator.daemon.api import shapes
from headwater.coordinator.daemon.api.schema import Schema


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: str
    """The name of the method of ``Api`` that serves it."""
    summary: str
    answer: Schema | None
    """What a 200 holds; None: text."""
    body: Schema | None = None
    also: frozenset[int] = frozenset()
    """Statuses beside 200 that mean an error and are to be expected here."""

    takes_text: bool = False
    """Whether the body may be the text of rules, as it is."""
    query: tuple[str, ...] = ()
    """Parameters of its own, as ``shapes.QUERY`` describes them."""

    @property
    def changes(self) -> bool:
        """Whether it changes state, and so needs a token."""
        return self.method != "GET"


_MISSING: Final = frozenset({404})
_CLASH: Final = frozenset({409})
_DOWN: Final = frozenset({503})
_LATE: Final = frozenset({503, 504})

ROUTES: Final = (
    Route("GET", "/health", "health", "Whether the coordinator lives", shapes.HEALTH),
    Route("GET", "/ready", "ready", "Whether all nodes are there and all trees stand", shapes.READY, also=_DOWN),
    Route("GET", "/openapi.json", "openapi", "This description", shapes.OPENAPI),
    Route("GET", "/metrics", "metrics", "Metrics in the text format of Prometheus", None),
    Route("GET", "/network", "network", "Nodes, links and event types", shapes.NETWORK),
    Route("GET", "/nodes", "nodes", "All nodes and how they are", shapes.NODES),
    Route("GET", "/nodes/{name}", "node", "One node", shapes.NODE, also=_MISSING),
    Route(
        "GET",
        "/nodes/{name}/tables",
        "tables",
        "What a node knows, as it tells it now",
        shapes.TABLES,
        also=_MISSING | _DOWN,
    ),
    Route("GET", "/links", "links", "All links, their state and what crossed them", shapes.LINKS),
    Route("GET", "/rules", "rules", "All rules that are deployed or still end", shapes.RULES),
    Route("GET", "/rules/{name}", "rule", "One rule", shapes.RULE, also=_MISSING),
    Route("GET", "/subscriptions", "subscriptions", "All subscriptions", shapes.SUBSCRIPTIONS),
    Route("GET", "/sources", "sources", "All sources", shapes.SOURCES),
    Route(
        "GET",
        "/statistics",
        "all_statistics",
        "Rates, selectivities and traffic, as nodes tell them",
        shapes.STATISTICS,
    ),
    Route("GET", "/plans", "plans", "The plan that holds, its trees, and the changes that led to it", shapes.PLANS),
    Route(
        "POST",
        "/rules",
        "deploy",
        "Deploy rules",
        shapes.CHANGED,
        shapes.POST_RULES,
        also=_CLASH | _LATE,
        takes_text=True,
        query=("replace", "language", "name"),
    ),
    Route(
        "PUT",
        "/rules/{name}",
        "replace",
        "Replace a rule",
        shapes.CHANGED,
        shapes.PUT_RULE,
        also=_MISSING | _CLASH | _LATE,
        takes_text=True,
        query=("language", "name"),
    ),
    Route("DELETE", "/rules/{name}", "undeploy", "Undeploy a rule", shapes.CHANGED, also=_MISSING | _CLASH | _LATE),
    Route(
        "POST",
        "/subscriptions",
        "subscribe",
        "Add a subscription",
        shapes.CHANGED,
        shapes.POST_SUBSCRIPTIONS,
        also=_LATE,
    ),
    Route(
        "DELETE", "/subscriptions/{number}", "unsubscribe", "End a subscription", shapes.CHANGED, also=_MISSING | _LATE
    ),
    Route("POST", "/sources", "bring_source", "Add a source", shapes.CHANGED, shapes.POST_SOURCES, also=_LATE),
    Route("DELETE", "/sources/{number}", "end_source", "End a source", shapes.CHANGED, also=_MISSING | _LATE),
    Route(
        "POST",
        "/nodes/{name}/lost",
        "lose_node",
        "Give a node up for good",
        shapes.CHANGED,
        also=_MISSING | _CLASH | _DOWN,
    ),
    Route(
        "POST",
        "/links/{one}/{other}/lost",
        "lose_link",
        "Give a link up for good",
        shapes.CHANGED,
        also=_MISSING | _CLASH | _DOWN,
    ),
    Route(
        "POST",
        "/nodes/{name}/back",
        "node_is_back",
        "Take a node back that was given up",
        shapes.CHANGED,
        also=_MISSING | _CLASH | _DOWN,
    ),
    Route(
        "POST",
        "/links/{one}/{other}/back",
        "link_is_back",
        "Take a link back that was given up",
        shapes.CHANGED,
        also=_MISSING | _DOWN,
    ),
    Route("POST", "/tidy-up", "tidy_up", "Let go of what has ended", shapes.CHANGED, also=_LATE),
    Route(
        "POST",
        "/plans",
        "plan_anew",
        "Place rules anew, for the rates of the last minute",
        shapes.CHANGED,
        also=_CLASH | _LATE,
    ),
)
