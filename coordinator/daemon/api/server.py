"""The HTTP server of the coordinator: all clients may read, those with the token may change."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from pydantic import BaseModel

from headwater.coordinator.daemon import metrics
from headwater.coordinator.daemon.api import views
from headwater.coordinator.daemon.api.body_errors import read_body
from headwater.coordinator.daemon.api.connection_limits import Door
from headwater.coordinator.daemon.api.destinations import check_topic, destination_of
from headwater.coordinator.daemon.api.models import RuleBody, RulesBody, SourceBody, SubscriptionBody
from headwater.coordinator.daemon.api.openapi import description
from headwater.coordinator.daemon.api.routes import ROUTES, Route
from headwater.coordinator.daemon.api.rule_texts import (
    ReadRules,
    is_rule_text,
    plain_source,
    read_rules,
    read_subscription,
    rule_sources,
)
from headwater.coordinator.daemon.operations import RequestPlanner, RequestRefused
from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    DeployRules,
    EndSource,
    EndSubscription,
    GiveUpLink,
    GiveUpNode,
    ReplaceRule,
    Request,
    TakeLinkBack,
    TakeNodeBack,
    TidyUp,
    UndeployRule,
)
from headwater.protocol import languages
from headwater.protocol.edge import is_replayed
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.languages.composite_types import composite_types
from headwater.protocol.network import Sink, Source
from headwater.protocol.pattern import Rule

if TYPE_CHECKING:
    from headwater.coordinator.daemon.process import CoordinatorDaemon

BODY_BYTES_MAX: Final = 1 << 20  # as large as a rule file may be
KEY_CHARACTERS_MAX: Final = 200
TABLES_BYTES_MAX: Final = 64 << 20  # a node with a million rows tells about so much
TABLES_S: Final = 5.0  # after this a node that does not tell its tables counts as not answering
LINGER_S: Final = 1.0  # how long the rest of a refused body is thrown away, so that the sender can read why
LEAVE_S: Final = 0.5  # at the end, how long requests get that are being answered; those that wait are cut off

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger("headwater.coordinator")


def failure(status: int, sentence: str) -> web.Response:
    return web.json_response({"error": sentence}, status=status)


JUDGED: Final = frozenset(("deploy", "replace", "subscribe", "add_source"))
"""Handlers that judge a request by the rules that hold: while these are not known, they cannot."""


class Api:
    """One method for each route."""

    def __init__(self, daemon: CoordinatorDaemon) -> None:
        self._daemon = daemon
        self.door = Door(daemon.counts)

    @property
    def _planner(self) -> RequestPlanner:
        machine = self._daemon.machine
        return RequestPlanner(machine.coordinator, machine.registry)

    # ------------------------------------------------------------------------------------------------- before and after

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        for route in ROUTES:
            app.router.add_route(
                route.method, route.path, self._served(route), expect_handler=self._expect if route.changes else None
            )
        return app

    def _served(self, route: Route) -> Handler:
        handler: Handler = getattr(self, route.handler)
        if not route.changes:
            return handler

        async def checked(request: web.Request) -> web.StreamResponse:
            if (refused := self._stranger(request) or self._oversized(request)) is not None:
                return refused
            try:
                request["body"] = await self._body(request, route)
            except web.HTTPRequestEntityTooLarge:
                return self._too_large(request)
            key = self._key(request)
            if key is not None and self._daemon.machine.knows(key):
                # Read again, what is asked for could be wrong by now: a rule that was deployed is there already.
                return await self._change(request, None)
            if route.handler in JUDGED and (why := self._daemon.machine.unsettled()) is not None:
                raise RequestRefused(503, why)
            return await handler(request)

        return checked

    async def _expect(self, request: web.Request) -> web.StreamResponse | None:
        """A client that asks before it sends a body is told at once whether it is wanted."""
        if (refused := self._stranger(request) or self._oversized(request)) is not None:
            return refused
        if request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None

    def _stranger(self, request: web.Request) -> web.Response | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._daemon.token.encode()):
            return None
        self._daemon.counts["http_unauthorized"] += 1
        sentence = (
            "this changes the network and needs the coordinator's token: send 'Authorization: Bearer TOKEN'; "
            "the token is in the file 'token' of the coordinator's data folder"
        )
        answer = failure(401, sentence)
        answer.headers["WWW-Authenticate"] = "Bearer"
        answer.force_close()
        return answer

    def _oversized(self, request: web.Request) -> web.Response | None:
        return self._too_large(request) if (request.content_length or 0) > BODY_BYTES_MAX else None

    def _too_large(self, request: web.Request) -> web.Response:
        self._daemon.counts["http_oversized"] += 1
        answer = failure(413, f"the body is too large; at most {BODY_BYTES_MAX} bytes are taken")
        answer.force_close()
        return answer

    async def _body(self, request: web.Request, route: Route) -> BaseModel | languages.Source | None:
        """As the model of the route, or rules as they are; None where the route has no body."""
        data = await request.read()
        if route.body is None:
            if data.strip() not in (b"", b"{}"):
                raise RequestRefused(400, "this request has no body; send none")
            return None
        if route.takes_text and is_rule_text(request.content_type, data):
            return plain_source(data, request.query)
        return read_body(route.body, data)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every error is a JSON object with a sentence."""
        self._daemon.counts["http_requests"] += 1
        self.door.entered(request)
        try:
            return await handler(request)
        except RequestRefused as refused:
            if refused.status == 400:
                self._daemon.counts["http_malformed"] += 1
            return failure(refused.status, refused.sentence)
        except HeadwaterError as error:
            self._daemon.counts["http_malformed"] += 1
            return failure(400, str(error))
        except web.HTTPNotFound:
            return failure(404, f"there is no {request.path}; GET /openapi.json lists everything")
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return web.json_response(
                {"error": f"{request.path} does not know {request.method}; it knows {allowed}"},
                status=405,
                headers={"Allow": allowed},
            )
        except web.HTTPRequestEntityTooLarge:
            return self._too_large(request)
        except web.HTTPException as error:
            return failure(error.status, error.reason)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("a request failed: %s %s", request.method, request.path)
            return failure(500, "the coordinator failed on this request (a bug; see its log)")

    @staticmethod
    def _key(request: web.Request) -> str | None:
        key = request.headers.get("Idempotency-Key")
        if key is not None and len(key) > KEY_CHARACTERS_MAX:
            raise RequestRefused(400, f"the Idempotency-Key is longer than {KEY_CHARACTERS_MAX} characters")
        return key

    async def _change(self, request: web.Request, ask: Request | None) -> web.Response:
        """Have it done and answer; without anything to do, answer as the same key was or will be answered."""
        if self._daemon.journal.is_full:
            raise RequestRefused(503, "the disk of the coordinator is full: nothing can be changed until there is room")
        status, body = await self._daemon.ask(ask, key=self._key(request), wait=self._flag(request, "wait", True))
        return web.json_response(body, status=status)

    # --------------------------------------------------------------------------------------------------------- looking

    async def health(self, request: web.Request) -> web.Response:
        daemon = self._daemon
        return web.json_response(
            {"status": "ok", "version": daemon.settings.version, "network": daemon.machine.setup.id}
        )

    async def ready(self, request: web.Request) -> web.Response:
        missing = [*self._missing()]
        if missing:
            refused = self._daemon.machine.refusals()
            body = {"error": "; ".join(missing), "missing": missing, **({"refused": refused} if refused else {})}
            return web.json_response(body, status=503)
        return web.json_response({"status": "ready"})

    def _missing(self) -> Iterator[str]:
        daemon, machine = self._daemon, self._daemon.machine
        if daemon.journal.is_full:
            yield "the disk of the coordinator is full"
        for node in machine.coordinator.nodes():
            if (state := views.node_state(daemon, node)) != "up":
                yield f"{node} has not registered yet" if state == "unregistered" else f"{node} is down"
        if not machine.missing() and (why := machine.unsettled()) is not None:
            yield why
        trees = machine.coordinator.trees
        for tree in trees.roots:
            if not trees.stands(tree):
                yield f"the tree of {tree} is not complete yet"

    async def openapi(self, request: web.Request) -> web.Response:
        return web.json_response(description(self._daemon.settings.version))

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=metrics.exposition(self._daemon), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def network(self, request: web.Request) -> web.Response:
        return web.json_response(views.network(self._daemon))

    async def nodes(self, request: web.Request) -> web.Response:
        names = self._daemon.machine.setup.network.nodes
        return web.json_response({"nodes": [views.node(self._daemon, name) for name in names]})

    async def node(self, request: web.Request) -> web.Response:
        return web.json_response(views.node(self._daemon, self._name(request)))

    async def tables(self, request: web.Request) -> web.Response:
        """Asks the node's own HTTP server."""
        name = self._name(request)
        registration = self._daemon.machine.registry.nodes.get(name)
        if registration is None or not registration.http:
            raise RequestRefused(503, f"{name} has not reported its HTTP address")
        base = registration.http if registration.http.startswith("http") else f"http://{registration.http}"
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=TABLES_S)) as session,
                session.get(f"{base}/tables") as answer,
            ):
                data = await answer.content.read(TABLES_BYTES_MAX)
                if answer.status != 200:
                    raise RequestRefused(503, f"{name} does not tell its tables: HTTP {answer.status}")
                tables = json.loads(data)
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise RequestRefused(
                503, f"{name} does not answer at {base} ({type(error).__name__}); it may be down"
            ) from None
        if not isinstance(tables, dict):
            raise RequestRefused(503, f"{name} answers with something that is not a table")
        return web.json_response(tables)

    async def links(self, request: web.Request) -> web.Response:
        return web.json_response(views.links(self._daemon))

    async def rules(self, request: web.Request) -> web.Response:
        rules = self._daemon.machine.coordinator.rules
        return web.json_response({"rules": [views.rule(planned) for _, planned in sorted(rules.items())]})

    async def rule(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        planned = self._daemon.machine.coordinator.rules.get(name)
        if planned is None:
            raise RequestRefused(404, f"there is no rule {name!r}; GET /rules lists all")
        return web.json_response(views.rule(planned))

    async def subscriptions(self, request: web.Request) -> web.Response:
        return web.json_response(views.subscriptions(self._daemon))

    async def sources(self, request: web.Request) -> web.Response:
        return web.json_response(views.sources(self._daemon))

    async def all_statistics(self, request: web.Request) -> web.Response:
        return web.json_response(views.statistics(self._daemon))

    async def plans(self, request: web.Request) -> web.Response:
        return web.json_response(views.plans(self._daemon))

    def _name(self, request: web.Request) -> str:
        name = request.match_info["name"]
        if name not in self._daemon.machine.setup.network.nodes:
            raise RequestRefused(404, f"the network has no node {name!r}; GET /nodes lists all")
        return name

    # -------------------------------------------------------------------------------------------------------- changing

    async def deploy(self, request: web.Request) -> web.Response:
        replaces = self._flag(request, "replace", False)
        read = self._read(request["body"], self._planner.live_rules(), replaces=replaces)
        return await self._change(request, DeployRules(read.rules, read.types, replaces))

    async def replace(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._planner.live_rules():
            raise RequestRefused(404, f"there is no rule {name!r}; GET /rules lists all, POST /rules deploys a new one")
        other_rules = {other: rule for other, rule in self._planner.live_rules().items() if other != name}
        read = self._read(request["body"], other_rules)
        if [rule.name for rule in read.rules] != [name]:
            names = ", ".join(rule.name for rule in read.rules)
            raise RequestRefused(400, f"the text must define the rule {name!r} and nothing else; it defines {names}")
        return await self._change(request, ReplaceRule(read.rules[0], read.types))

    def _read(
        self, body: languages.Source | RuleBody | RulesBody, deployed: dict[str, Rule], *, replaces: bool = False
    ) -> ReadRules:
        machine = self._daemon.machine
        return read_rules(
            _texts(body),
            deployed,
            machine.registry.types,
            machine.coordinator.strategy,
            replaces=replaces,
            tables=machine.setup.network.tables,
            functions=machine.setup.network.functions,
        )

    async def undeploy(self, request: web.Request) -> web.Response:
        return await self._change(request, UndeployRule(request.match_info["name"]))

    async def subscribe(self, request: web.Request) -> web.Response:
        body: SubscriptionBody = request["body"]
        machine = self._daemon.machine
        rules = self._planner.live_rules().values()
        subscription = read_subscription(body.subscribe, rules, machine.registry.types, machine.setup.network.functions)
        to = destination_of(body.to, machine.registry.broker())
        check_topic(to, {**composite_types(rules), **machine.registry.types}.get(subscription.type))
        return await self._change(request, AddSubscription(Sink(body.node, subscription), to))

    async def unsubscribe(self, request: web.Request) -> web.Response:
        return await self._change(request, EndSubscription(self._number(request)))

    async def add_source(self, request: web.Request) -> web.Response:
        body: SourceBody = request["body"]
        source = Source(body.node, body.type, body.lateness_us, is_replayed(body.feed))
        return await self._change(request, AddSource(source, body.feed))

    async def end_source(self, request: web.Request) -> web.Response:
        return await self._change(request, EndSource(self._number(request)))

    async def give_up_node(self, request: web.Request) -> web.Response:
        name = self._name(request)
        if name in self._daemon.machine.lost_nodes:
            raise RequestRefused(409, f"{name} has been given up already")
        if views.node_state(self._daemon, name) == "up":
            raise RequestRefused(409, f"{name} is up; stop it before it is given up")
        return await self._change(request, GiveUpNode(name))

    async def give_up_link(self, request: web.Request) -> web.Response:
        one, other = request.match_info["one"], request.match_info["other"]
        return await self._change(request, GiveUpLink(one, other))

    async def take_node_back(self, request: web.Request) -> web.Response:
        return await self._change(request, TakeNodeBack(self._name(request)))

    async def take_link_back(self, request: web.Request) -> web.Response:
        return await self._change(request, TakeLinkBack(request.match_info["one"], request.match_info["other"]))

    async def tidy_up(self, request: web.Request) -> web.Response:
        return await self._change(request, TidyUp())

    async def plan_anew(self, request: web.Request) -> web.Response:
        """For rates and selectivities as measured; where nothing was, for what the network file says."""
        return await self._change(request, self._daemon.plan_anew())

    @staticmethod
    def _flag(request: web.Request, name: str, default: bool) -> bool:
        text = request.query.get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise RequestRefused(400, f"{name} is {text!r:.40}; write true or false")
        return text == "true"

    @staticmethod
    def _number(request: web.Request) -> int:
        text = request.match_info["number"]
        if not re.fullmatch(r"[0-9]{1,12}", text):
            raise RequestRefused(400, f"{text!r:.40} is not a number")
        return int(text)


def _texts(body: languages.Source | RuleBody | RulesBody) -> list[languages.Source]:
    match body:
        case languages.Source():
            return [body]
        case RuleBody():
            return rule_sources([body])
        case RulesBody():
            return rule_sources(body.texts())


async def serve(daemon: CoordinatorDaemon, address: str) -> tuple[web.AppRunner, str]:
    """Listen at ``host:port`` (port 0: any); the runner and the address with its port."""
    api = Api(daemon)
    app = api.application()
    app.on_shutdown.append(api.door.close)
    runner = web.AppRunner(app, access_log=None, logger=api.door.log, lingering_time=LINGER_S, shutdown_timeout=LEAVE_S)
    await runner.setup()
    assert runner.server is not None
    host, _, port = address.rpartition(":")
    bound = await api.door.open(runner.server, host.strip("[]") or "127.0.0.1", int(port))
    return runner, f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"
