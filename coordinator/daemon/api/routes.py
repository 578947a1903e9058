"""The routes of the API in one table, from which requests are served and the OpenAPI description is generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from headwater.coordinator.daemon.api import models


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: str
    """The name of the method of ``Api`` that serves it."""
    summary: str
    answer: type[BaseModel] | None
    """What a 200 holds; None: text."""
    body: type[BaseModel] | None = None
    also: frozenset[int] = frozenset()
    """Statuses beside 200 that mean an error and are to be expected here."""

    takes_text: bool = False
    """Whether the body may be the text of rules, as it is."""
    query: tuple[str, ...] = ()
    """Parameters of its own, as ``openapi.QUERY`` describes them."""

    @property
    def changes(self) -> bool:
        """Whether it changes state, and so needs a token."""
        return self.method != "GET"


_MISSING: Final = frozenset({404})
_CLASH: Final = frozenset({409})
_DOWN: Final = frozenset({503})
_LATE: Final = frozenset({503, 504})

ROUTES: Final = (
    Route("GET", "/health", "health", "Whether the coordinator lives", models.HealthView),
    Route("GET", "/ready", "ready", "Whether all nodes are there and all trees stand", models.ReadyView, also=_DOWN),
    Route("GET", "/openapi.json", "openapi", "This description", models.OpenApiView),
    Route("GET", "/metrics", "metrics", "Metrics in the text format of Prometheus", None),
    Route("GET", "/network", "network", "Nodes, links and event types", models.NetworkView),
    Route("GET", "/nodes", "nodes", "All nodes and how they are", models.NodesView),
    Route("GET", "/nodes/{name}", "node", "One node", models.NodeView, also=_MISSING),
    Route(
        "GET",
        "/nodes/{name}/tables",
        "tables",
        "What a node knows now",
        models.TablesView,
        also=_MISSING | _DOWN,
    ),
    Route("GET", "/links", "links", "All links, their state and what crossed them", models.LinksView),
    Route("GET", "/rules", "rules", "All rules that are deployed or still end", models.RulesView),
    Route("GET", "/rules/{name}", "rule", "One rule", models.RuleView, also=_MISSING),
    Route("GET", "/subscriptions", "subscriptions", "All subscriptions", models.SubscriptionsView),
    Route("GET", "/sources", "sources", "All sources", models.SourcesView),
    Route(
        "GET",
        "/statistics",
        "all_statistics",
        "Rates, selectivities and traffic, as nodes tell them",
        models.StatisticsView,
    ),
    Route("GET", "/plans", "plans", "The plan that holds, its trees, and the changes that led to it", models.PlansView),
    Route(
        "POST",
        "/rules",
        "deploy",
        "Deploy rules",
        models.ChangeView,
        models.RulesBody,
        also=_CLASH | _LATE,
        takes_text=True,
        query=("replace", "language", "name"),
    ),
    Route(
        "PUT",
        "/rules/{name}",
        "replace",
        "Replace a rule",
        models.ChangeView,
        models.RuleBody,
        also=_MISSING | _CLASH | _LATE,
        takes_text=True,
        query=("language", "name"),
    ),
    Route("DELETE", "/rules/{name}", "undeploy", "Undeploy a rule", models.ChangeView, also=_MISSING | _CLASH | _LATE),
    Route(
        "POST",
        "/subscriptions",
        "subscribe",
        "Add a subscription",
        models.ChangeView,
        models.SubscriptionBody,
        also=_LATE,
    ),
    Route(
        "DELETE",
        "/subscriptions/{number}",
        "unsubscribe",
        "End a subscription",
        models.ChangeView,
        also=_MISSING | _LATE,
    ),
    Route("POST", "/sources", "add_source", "Add a source", models.ChangeView, models.SourceBody, also=_LATE),
    Route("DELETE", "/sources/{number}", "end_source", "End a source", models.ChangeView, also=_MISSING | _LATE),
    Route(
        "POST",
        "/nodes/{name}/lost",
        "give_up_node",
        "Give a node up for good",
        models.ChangeView,
        also=_MISSING | _CLASH | _DOWN,
    ),
    Route(
        "POST",
        "/links/{one}/{other}/lost",
        "give_up_link",
        "Give a link up for good",
        models.ChangeView,
        also=_MISSING | _CLASH | _DOWN,
    ),
    Route(
        "POST",
        "/nodes/{name}/back",
        "take_node_back",
        "Take a node back that was given up",
        models.ChangeView,
        also=_MISSING | _CLASH | _DOWN,
    ),
    Route(
        "POST",
        "/links/{one}/{other}/back",
        "take_link_back",
        "Take a link back that was given up",
        models.ChangeView,
        also=_MISSING | _DOWN,
    ),
    Route("POST", "/tidy-up", "tidy_up", "Let go of what has ended", models.ChangeView, also=_LATE),
    Route(
        "POST",
        "/plans",
        "plan_anew",
        "Place rules again, for the rates of the last minute",
        models.ChangeView,
        also=_CLASH | _LATE,
    ),
)
