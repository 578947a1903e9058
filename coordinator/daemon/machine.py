"""The coordinator process without its sockets, its clock and its disk: ``handle(input, now_us) -> effects``.

Equal inputs at equal times give equal effects, so that a journal of the inputs brings a coordinator back to where it
was, with the same orders under the same numbers on its links.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from headwater.coordinator.core import Coordinator, Orders
from headwater.coordinator.daemon import function_consent
from headwater.coordinator.daemon.inputs import (
    Answered,
    Asked,
    Effect,
    Heard,
    Input,
    Note,
    Outdated,
    PeerMet,
    PeerReset,
    Reborn,
    Setup,
    Started,
    Tell,
    Tick,
)
from headwater.coordinator.daemon.operations import Operation, RequestPlanner, RequestRefused, Waiter, event_time
from headwater.coordinator.daemon.operator_decisions import Decisions
from headwater.coordinator.daemon.recovery import CoordinatorMemory, found_sentence, noted_network, why_not_ours
from headwater.coordinator.daemon.registry import Registry
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.losses import LostLink, LostNode
from headwater.coordinator.planners import planner_of, statistics_of
from headwater.coordinator.recovery import noted, recalled
from headwater.coordinator.requests import (
    AddClientSubscription,
    AddSource,
    AddSubscription,
    ChangeOutcome,
    Decision,
    DeployRules,
    EndClientSubscription,
    FallBack,
    GiveUpLink,
    GiveUpNode,
    ReplaceRule,
    Request,
    TakeLinkBack,
    TakeNodeBack,
    describe,
)
from headwater.protocol.destinations import named
from headwater.protocol.errors import ConfigError
from headwater.protocol.messages import control
from headwater.protocol.messages.control import (
    Answer,
    Configure,
    Ordered,
    Register,
    Reported,
    SubscribeClient,
    UnsubscribeClient,
)
from headwater.protocol.messages.plans import Adopt, CostsMore
from headwater.protocol.messages.recovery import Noted, NotedAnswer, NotedLink, NotedLoss, NotedPlan, Recall
from headwater.protocol.messages.trees import DropLink, UseLink
from headwater.protocol.text import listed
from headwater.protocol.wire.rule_encoding import CodecError

WAITING_MAX: Final = 1_000  # changes are made one by one, each costs all nodes new trees: more than this is a mistake
KEYS_MAX: Final = 1_000  # answers remembered for those who ask again because they did not hear the first
KEYS_NOTED: Final = 50  # of these answers, so many of the newest survive the loss of the coordinator's own memory
HISTORY_MAX: Final = 1_000  # changes that are shown; what holds now is in the plan itself


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may set."""

    change_timeout_us: int = 10_000_000
    """A change that not all nodes have prepared by then is given up."""


@dataclass(frozen=True, slots=True)
class Past:
    """A request that has been decided."""

    number: int
    what: str
    asked_us: int
    holds_from_us: int | None
    refused: str | None


class Machine:
    """One network and everything that was decided about it."""

    def __init__(self, setup: Setup, settings: Settings | None = None, pieces: Iterable[Noted] = ()) -> None:
        """``pieces`` are what is left of the memory of an earlier life."""
        self.setup = setup
        self.settings = settings or Settings()
        self._lay_out = planner_of(setup.network.strategy, setup.statistics)
        self.coordinator = Coordinator(
            setup.network, setup.network.strategy, lay_out=self._lay_out, falls_back=setup.falls_back
        )
        self.registry = Registry(setup)
        self.begun = False
        """Whether the first plan has been sent to the nodes."""
        self.lost_nodes: dict[str, str | None] = {}
        """Nodes that were given up, each with the life it had."""
        self._returned: dict[str, Register] = {}
        """Lost nodes that have registered again and wait until an operator takes them back."""
        self.lost_links: set[tuple[str, str]] = set()
        self.current: Operation | None = None
        self.waiting: deque[Operation] = deque()
        self.history: deque[Past] = deque(maxlen=HISTORY_MAX)
        self.counts: Counter[str] = Counter()
        """Changes made and refused, orders given, messages that made no sense."""
        self._operations = 0
        self._answers: dict[str, Answered] = {}
        """The answer for each key that a client has given."""
        self._planner = RequestPlanner(self.coordinator, self.registry)
        self.memory = CoordinatorMemory(pieces)
        self._early: list[LostNode | LostLink] = []
        """What an operator has given up before the nodes were sent a plan."""
        self.is_outdated = False
        """Whether nodes remember more than this machine does, so that it must not go on."""
        if self.memory.found:
            self._recall()

    def reborn(self) -> Machine:
        """A new life after a part of the memory was lost, on which nodes rely: what they remember counts, and what is
        left here only if it is newer."""
        return Machine(self.setup, self.settings, self.memory.told.values() or self.memory.found)

    # ---------------------------------------------------------------------------------------------------------- inputs

    def handle(self, received: Input, now_us: int) -> list[Effect]:
        """Take one input; what must be done once it is durable, in this order."""
        out: list[Effect] = []
        match received:
            case Started(broker, dialled):
                self.registry.started(broker, dialled)
            case Heard(peer, _, payloads):
                for payload in payloads:
                    self._heard(peer, payload, now_us, out)
            case PeerReset(peer):
                self._reset(peer)
            case Asked():
                self._asked(received, now_us, out)
            case Tick() | PeerMet() | Reborn():
                pass
            case _:
                assert_never(received)
        self._give_up_late(now_us, out)
        self._go_on(now_us, out)
        if self.begun and self.coordinator.is_idle() and not self.coordinator.trees.superseded:
            self.registry.drop_ended(self.coordinator.sources.keys(), self.coordinator.sinks.keys(), self.lost_nodes)
        self._tell_failures(out)
        self._configure(out)
        self._remind(out)
        return out

    def due_us(self) -> int | None:
        """When the next ``Tick`` has something to do; None: nothing waits for time to pass."""
        return self.current.deadline_us if self.current is not None else None

    # ----------------------------------------------------------------------------------------------------------- nodes

    def _heard(self, peer: str, payload: bytes, now_us: int, out: list[Effect]) -> None:
        try:
            message = control.decode(payload)
        except CodecError:
            self.counts["refused_messages"] += 1
            return
        match message:
            case Register():
                self._register(peer, message, now_us, out)
            case Recall():
                self.memory.recalls(peer, message)
            case Reported(CostsMore() as report):
                if self.begun and peer not in self.lost_nodes:
                    self._costs_more(peer, report, now_us, out)
            case Reported(report):
                if self.begun and peer not in self.lost_nodes:
                    self._order(self.coordinator.reported(peer, report), out)
                    self._look_for_commit(now_us, out)
            case SubscribeClient(request, client, subscription):
                self._enter(AddClientSubscription(peer, client, subscription), Waiter(request, peer), None, now_us, out)
            case UnsubscribeClient(request, client, subscription):
                self._enter(EndClientSubscription(peer, client, subscription), Waiter(request, peer), None, now_us, out)
            case _:
                self.counts["refused_messages"] += 1

    def _costs_more(self, peer: str, report: CostsMore, now_us: int, out: list[Effect]) -> None:
        """A stage falls back when its turn has come, like everything that is asked for."""
        change = self.coordinator.judged(peer, report)
        if change is not None:
            out.append(Note(change.why))
            self._enter(change, None, None, now_us, out)

    def _register(self, peer: str, message: Register, now_us: int, out: list[Effect]) -> None:
        if message.name != peer or peer not in self.setup.network.nodes:
            self.counts["refused_messages"] += 1
            return
        self.registry.has_version(peer, self.memory.config(peer))
        if peer in self.lost_nodes:
            self._returned[peer] = message
            self.counts["refused_registrations"] += 1
            out.append(Note(f"{peer} registers, but was given up as lost; POST /nodes/{peer}/back takes it back"))
            return
        if self.begun and self.memory.newest(peer) > self.coordinator.plan:
            self.is_outdated = True
            out.append(
                Outdated(
                    f"{peer} remembers plan {self.memory.newest(peer)}, this coordinator only plan "
                    f"{self.coordinator.plan}: its data folder is an old copy, or a part of its journal is gone; it "
                    f"begins a new life and learns from its nodes what holds"
                )
            )
            return
        self.counts["registrations"] += 1
        if not self.begun and self.memory.registered(peer):
            self._recall()
        self.registry.register(message, now_us)
        if message.functions:
            self._refused(peer, message.functions, out)
        if not self.begun:
            self._begin_if_complete(out)
        elif peer in self.registry.unlinked:
            self._link(peer, out)
        elif peer not in self.registry.sent:
            plan = self.memory.plan(peer)
            lost = f"what was on its way to {peer} is lost; everything is sent to it again"
            out.append(Note(lost if plan else f"{peer} has lost its memory and starts a new life"))
            self._configure(out)
            self._link(peer, out)

    def _link(self, peer: str, out: list[Effect]) -> None:
        """Tell a node that begins a life what holds, as soon as it is certain that it can run it."""
        if function_consent.plan_calls(self.coordinator) and self.registry.nodes[peer].functions != "":
            self.registry.unlinked = tuple(sorted({*self.registry.unlinked, peer}))
            return
        self.registry.unlinked = tuple(node for node in self.registry.unlinked if node != peer)
        self._order(self.coordinator.relinked({peer: self.memory.plan(peer)}), out)

    def _refused(self, peer: str, why: str, out: list[Effect]) -> None:
        """A node does not run the functions of the network: a change that needs them does not come about."""
        sentence = function_consent.refusal(peer, why)
        out.append(Note(sentence))
        operation = self.current
        if operation is not None and operation.started and function_consent.request_calls(operation.ask):
            self._order(self.coordinator.abort(), out)
            self.coordinator.take_outcomes()
            self.current = None
            self._end(operation, out, 409, operation.partly(sentence))

    def _reset(self, peer: str) -> None:
        """What was on its way to a node, or from it, is lost. The node will register and tell what it remembers."""
        self.registry.await_again(peer)
        self.memory.forget(peer)
        if not self.begun:
            self.registry.nodes.pop(peer, None)

    def missing(self) -> list[str]:
        """Nodes that have not registered yet."""
        waited_for = [node for node in self.coordinator.nodes() if node not in self.lost_nodes]
        return [node for node in waited_for if node not in self.registry.nodes]

    @property
    def planned_for(self) -> Statistics:
        """What the planner knew when it last placed rules."""
        return statistics_of(self.coordinator.layings.lay_out) or self.setup.statistics

    def unsettled(self) -> str | None:
        """Why it is not known yet what holds, in a sentence; None: it is. What nodes remember may differ from what the
        network file says."""
        if self.begun:
            return None
        why = why_not_ours(self.memory.found, self.setup)
        missing = listed(self.missing())
        if why is None and not missing:
            why = "; ".join(self.refusals()) or "not every node has said yet whether it runs the functions; ask again"
        return why or f"{missing} must register before it is known which rules and subscriptions hold; ask again"

    def refusals(self) -> list[str]:
        """Why the plan cannot hold everywhere, a sentence for each node that does not run the functions it calls."""
        if not function_consent.plan_calls(self.coordinator):
            return []
        return function_consent.refusals(self.registry, self._counted_on())

    def _counted_on(self) -> list[str]:
        return [node for node in self.coordinator.nodes() if node not in self.lost_nodes]

    def _all_run_functions(self) -> bool:
        nodes = self._counted_on()
        return not (function_consent.undecided(self.registry, nodes) or function_consent.refusals(self.registry, nodes))

    def _begin_if_complete(self, out: list[Effect]) -> None:
        if self.begun or self.missing():
            return
        if function_consent.plan_calls(self.coordinator) and not self._all_run_functions():
            return
        if (why := why_not_ours(self.memory.found, self.setup)) is not None:
            out.append(Note(why))
            return
        self.begun = True
        if not self.memory.found:
            self._configure(out)
            self._order(self.coordinator.begin(), out)
            return
        plans = {node: self.memory.plan(node) for node in self.coordinator.nodes() if node not in self.lost_nodes}
        self.coordinator.hear_of_plans(plans.values())
        out.append(Note(found_sentence(self.coordinator, self.setup, plans)))
        self._configure(out)
        self._order(self.coordinator.relinked(plans, self._early), out)

    # ---------------------------------------------------------------------------------------------------------- memory

    def _recall(self) -> None:
        """Become what the newest memory says. Nodes hear of it when all of them have registered."""
        pieces = self.memory.found
        if why_not_ours(pieces, self.setup) is not None:
            return
        self.coordinator = recalled(self.setup.network, pieces, self._lay_out, falls_back=self.setup.falls_back)
        self.registry.recall(pieces)
        self._planner = RequestPlanner(self.coordinator, self.registry)
        self.lost_nodes = {fact.node: None for fact in self._early if isinstance(fact, LostNode)}
        self.lost_links = {(fact.one, fact.other) for fact in self._early if isinstance(fact, LostLink)}
        self._answers.clear()
        for piece in pieces:
            match piece:
                case NotedPlan(operations=operations):
                    self._operations = max(self._operations, operations)
                case NotedLoss(node, life):
                    self.lost_nodes[node] = life
                case NotedLink(one, other, True):
                    self.lost_links.add((one, other))
                case NotedAnswer(key, status, body):
                    self._answers[key] = Answered("", status, json.loads(body))
        for node in self.lost_nodes.keys() & self.registry.nodes.keys():
            registration = self.registry.nodes.pop(node)
            self._returned[node] = Register(
                node,
                registration.life,
                registration.address,
                registration.http,
                registration.version,
                registration.functions,
            )

    def _remind(self, out: list[Effect]) -> None:
        """With a plan, or what is said of links, nodes are told what to keep, before anything follows from it."""
        if not any(map(_changes_a_plan_or_link, out)) or self.coordinator.unanswered():
            return
        answers = list(self._answers.items())[-KEYS_NOTED:]
        pieces = [
            noted_network(self.setup, self.registry.run),
            *self.registry.noted(),
            *noted(self.coordinator, self._operations, self.lost_nodes),
            *(NotedAnswer(key, answer.status, json.dumps(answer.body, sort_keys=True)) for key, answer in answers),
        ]
        keepers = [node for node in self.coordinator.nodes() if node in self.registry.sent]
        out[:0] = [Tell(node, message) for node, message in self.memory.news(pieces, keepers)]

    def _configure(self, out: list[Effect]) -> None:
        out += [Tell(node, Configure(config)) for node, config in self.registry.changed(self.lost_nodes)]

    def _order(self, orders: Orders, out: list[Effect]) -> None:
        for node, order in orders:
            # Who has lost its memory and has not registered since is told everything when it does.
            if node not in self.lost_nodes and node in self.registry.sent and node not in self.registry.unlinked:
                self.counts["orders"] += 1
                out.append(Tell(node, Ordered(order)))

    # -------------------------------------------------------------------------------------------------------- requests

    def _asked(self, asked: Asked, now_us: int, out: list[Effect]) -> None:
        waiter = Waiter(asked.request)
        if asked.key is not None:
            if (answer := self._answers.get(asked.key)) is not None:
                out.append(Answered(asked.request, answer.status, answer.body))
                return
            if (operation := self._under_way(asked.key)) is not None:
                operation.waiters.append(waiter)
                return
        match asked.ask:
            case None:
                raise AssertionError("only a key that is known stands for itself")
            case GiveUpNode() | GiveUpLink() | TakeNodeBack() | TakeLinkBack() as decision:
                self._decide(decision, waiter, asked.key, now_us, out)
            case request:
                self._enter(request, waiter, asked.key, now_us, out)

    def knows(self, key: str) -> bool:
        """Whether a request came with this key before, so that no more than the key is needed to answer."""
        return key in self._answers or self._under_way(key) is not None

    def _under_way(self, key: str) -> Operation | None:
        operations = [*([self.current] if self.current is not None else []), *self.waiting]
        return next((operation for operation in operations if operation.key == key), None)

    def _enter(self, ask: Request, waiter: Waiter | None, key: str | None, now_us: int, out: list[Effect]) -> None:
        operation = self._operation(ask, waiter, key, now_us)
        if len(self.waiting) >= WAITING_MAX:
            sentence = f"{WAITING_MAX} changes are waiting already; ask again when some of them are done"
            self._end(operation, out, 503, sentence)
        else:
            self.waiting.append(operation)

    def _operation(self, ask: Request, waiter: Waiter | None, key: str | None, now_us: int) -> Operation:
        self._operations += 1
        return Operation(self._operations, ask, now_us, [] if waiter is None else [waiter], key)

    def _go_on(self, now_us: int, out: list[Effect]) -> None:
        """Begin what can begin: the next step of the current operation, or the next operation."""
        while True:
            operation = self.current
            if operation is None:
                if not self.waiting or not self.begun:
                    return
                operation = self.current = self.waiting.popleft()
                try:
                    self._check_functions(operation.ask)
                    operation.steps = self._planner.steps(operation.ask)
                except RequestRefused as refused:
                    self.current = None
                    self._end(operation, out, refused.status, refused.sentence)
                    continue
                operation.deadline_us = now_us + self.settings.change_timeout_us
            if not operation.steps:
                self.current = None
                self._end(operation, out)
                continue
            if operation.started or not self.coordinator.is_idle():
                return
            operation.started = True
            match operation.ask:
                case DeployRules(types=types) | ReplaceRule(types=types):
                    self.registry.declare(types)
                    self.coordinator.declare(types)
            try:
                self._order(self.coordinator.request(operation.steps[0], operation.number), out)
            except ConfigError as error:
                self.current = None
                self._end(operation, out, 409, operation.partly(str(error)))
                continue
            self._look_for_commit(now_us, out)  # in a network without nodes there is none to wait for

    def _check_functions(self, request: Request) -> None:
        """RequestRefused if it calls functions that some node does not run."""
        if not function_consent.request_calls(request) or self._all_run_functions():
            return
        nodes = self._counted_on()
        sentences = function_consent.refusals(self.registry, nodes)
        undecided = listed(function_consent.undecided(self.registry, nodes))
        raise RequestRefused(409, "; ".join(sentences) or f"{undecided} must load the functions first; ask again")

    def _look_for_commit(self, now_us: int, out: list[Effect]) -> None:
        """Whether a change holds now, or cannot be. What it added must be configured before nodes hear of the plan."""
        outcomes = self.coordinator.take_outcomes()
        failed = self._tell_failures(out)
        for outcome in outcomes:
            operation = self._operation_of(outcome)
            if outcome.refused is None:
                self.counts["changes"] += 1
                self.counts["fall_backs"] += isinstance(outcome.change, FallBack)
                if operation is not None:  # otherwise it is what a node that is back takes up again
                    self._step_holds(operation, outcome, failed, now_us, out)
            elif operation is None:
                out.append(Note(f"{outcome.change} was given up: {outcome.refused}"))
            else:
                self.current = None
                self._end(operation, out, 409, operation.partly(outcome.refused))
        if any(outcome.refused is None for outcome in outcomes):
            self._configure_first(out)

    def _operation_of(self, outcome: ChangeOutcome) -> Operation | None:
        """The current operation, if this is the outcome of the step that nodes have prepared for it."""
        operation = self.current
        is_step = operation is not None and operation.started and operation.number == outcome.ticket
        return operation if is_step else None

    def _step_holds(
        self, operation: Operation, outcome: ChangeOutcome, failed: list[str], now_us: int, out: list[Effect]
    ) -> None:
        """A step holds; go on with the next. ``failed``: where the planner has failed with it."""
        match outcome:
            case ChangeOutcome(AddSubscription(sink, destination), number=int(number)) if destination is not None:
                operation.subscription = number
                self.registry.add_sink(number, sink, named(destination, number))
            case ChangeOutcome(AddSource(source, feed), number=int(number)) if feed is not None:
                operation.source = number
                self.registry.add_source(number, source, feed)
        assert outcome.from_us is not None
        operation.warnings += failed
        operation.holds_from_us = event_time(outcome.from_us)
        operation.steps.pop(0)
        operation.made += 1
        operation.started = False
        operation.deadline_us = now_us + self.settings.change_timeout_us
        if not operation.steps:
            self.current = None
            self._end(operation, out)

    def _tell_failures(self, out: list[Effect]) -> list[str]:
        """Where the planner has failed since this was last asked: everything goes on without it, and operators hear."""
        failures = self.coordinator.layings.take_failures()
        self.counts["planner_failures"] += len(failures)
        out += map(Note, failures)
        return failures

    def _configure_first(self, out: list[Effect]) -> None:
        configures: list[Effect] = []
        self._configure(configures)
        out[:0] = configures

    def _give_up_late(self, now_us: int, out: list[Effect]) -> None:
        operation = self.current
        if operation is None or operation.deadline_us is None or now_us < operation.deadline_us:
            return
        after = f"within {self.settings.change_timeout_us / 1e6:g} s"
        if operation.started:
            silent = self.coordinator.unprepared()
            self._order(self.coordinator.abort(), out)
            sentence = f"{listed(silent)} did not answer {after}" if silent else f"the trees were not complete {after}"
        else:
            sentence = f"{self._unfinished()} {after}"
        self.current = None
        self.counts["aborted_changes"] += 1
        self._end(operation, out, 504, operation.partly(sentence))

    def _unfinished(self) -> str:
        """What the coordinator waits for before it can begin a change."""
        if silent := self.coordinator.unanswered():
            return f"a loss was not dealt with, since {listed(silent)} did not answer"
        trees = self.coordinator.trees
        building = [tree for tree in trees.roots if not trees.stands(tree)]
        return f"the trees of {listed(building)} were not complete" if building else "the change before was not made"

    def _end(self, operation: Operation, out: list[Effect], status: int = 200, refused: str | None = None) -> None:
        """Answer all that wait for it."""
        body = operation.body() if refused is None else {"error": refused}
        self.counts["requests_done" if refused is None else "requests_refused"] += 1
        for waiter in operation.waiters:
            if waiter.node is None:
                out.append(Answered(str(waiter.request), status, body))
            elif waiter.node not in self.lost_nodes:
                out.append(Tell(waiter.node, Answer(int(waiter.request), refused)))
        self.history.append(
            Past(operation.number, operation.what(), operation.asked_us, operation.holds_from_us, refused)
        )
        if operation.key is not None and status < 500:  # what failed for want of an answer may be asked again
            self._answers[operation.key] = Answered("", status, body)
            while len(self._answers) > KEYS_MAX:
                del self._answers[next(iter(self._answers))]

    # ---------------------------------------------------------------------------------------------------------- losses

    def _decide(self, ask: Decision, waiter: Waiter, key: str | None, now_us: int, out: list[Effect]) -> None:
        """What an operator decides holds at once; what follows from it waits for the answers of the nodes."""
        operation = self._operation(ask, waiter, key, now_us)
        try:
            orders = self._decisions().orders_for(ask, now_us)
        except RequestRefused as refused:
            self._end(operation, out, refused.status, refused.sentence)
            return
        except ConfigError as error:
            self._end(operation, out, 404, str(error))
            return
        match ask:
            case TakeNodeBack(node):
                self._configure(out)  # before it hears of a plan
                if function_consent.plan_calls(self.coordinator) and self.registry.nodes[node].functions != "":
                    self.registry.unlinked = tuple(sorted({*self.registry.unlinked, node}))
        if self.begun:
            self._order(orders, out)
        else:
            self._begin_if_complete(out)  # no node has had an order yet: the first plan says it all
        self._look_for_commit(now_us, out)
        out.append(Note(f"an operator decided: {describe(ask)}"))
        self._end(operation, out)

    def _decisions(self) -> Decisions:
        return Decisions(
            self.coordinator,
            self.registry,
            self.lost_nodes,
            self.lost_links,
            self._returned,
            self._early,
            begun=self.begun,
            remembers=bool(self.memory.found),
        )


def _changes_a_plan_or_link(effect: Effect) -> bool:
    match effect:
        case Tell(message=Ordered(Adopt() | DropLink() | UseLink())):
            return True
        case _:
            return False
