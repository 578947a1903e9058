"""The tree protocol at one node: its parent and children in each tree, and its part in building them.

A node that is offered a better way to the root than it has (less delay; of equal ways the parent with the smaller name)
takes the sender for its parent, tells its old parent with a TreeNack that it leaves, and offers its own new cost to all
other neighbours. It owes its parent a TreeAck, which it sends when every neighbour has answered its latest offer: with
a TreeAck (a child below which all is settled) or a TreeNack. Answers name the offer they answer; older ones are
ignored. So the acknowledgements converge on the root, and the tree stands when the root has all of them.

Why the root is not done early. Call a node open while an answer to its latest offer is missing.

- An open node has not acknowledged its parent's latest offer: it sends the acknowledgement when it is no longer open,
  and it opens again only by adopting a parent, which makes a new debt.
- So its parent is open, too: either the parent still waits for this very acknowledgement, or the parent has made a
  newer offer, which is on its way to the node and not answered either. (The newer offer is sent to the node, since a
  parent costs less than its child and so never takes it for its own parent.)
- Costs fall strictly from child to parent (``extended`` always adds), so this ends at the root: while any offer is
  unanswered anywhere, a better one in flight above all, the root is open.

And children are right at that moment: a node that leaves its parent also makes it an offer, sent after the TreeNack on
the same link, and stays open until that is answered. So every leave has arrived when the root is done. All that may
still be under way are refusals of offers that were overtaken (by adopting the node that refuses); they are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

from headwater.node.plans.lifecycle import EARLY_MAX, Input, State, TreeName, TreeRecord, TreeTable
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.messages.trees import (
    ROOT_COST,
    Cost,
    CreateTree,
    DropLink,
    ForgetTree,
    InstallTree,
    LinkAgain,
    StartTree,
    TreeAck,
    TreeMessage,
    TreeNack,
    TreeOrder,
    UseLink,
    extended,
)

Sends: TypeAlias = list[tuple[str, TreeMessage]]
"""Messages with the neighbours they go to, in the order in which they must leave."""

LinkSends: TypeAlias = list[tuple[str, TreeMessage | LinkAgain]]


class TreeStateError(HeadwaterError):
    """Saved trees that are damaged or another node's: the operator, who keeps the node's state, must act."""


@dataclass(slots=True)
class Build:
    """One tree in one epoch. Without a cost it was installed, and nothing is left to negotiate."""

    parent: str | None = None
    cost: Cost | None = None
    parent_cost: Cost | None = None
    """The parent's latest offer: what the acknowledgement names."""
    acknowledged: bool = False
    children: set[str] = field(default_factory=set)
    waiting: dict[str, int] = field(default_factory=dict)
    """Neighbours that owe answers to the latest offer, and how many: a former parent may owe two to equal offers."""
    broken: bool = False

    @property
    def state(self) -> str:
        if self.broken:
            return "broken"
        if self.cost is None:
            return "installed"
        return "building" if self.waiting else "settled"


class Trees:
    """All trees of one node. Links must deliver in order and without loss; nothing else is asked of timing.

    ``unknown`` counts messages about builds that were forgotten, never begun or not negotiated here, and from
    strangers; ``stale`` counts messages that later ones have overtaken or that concern a broken build.
    """

    def __init__(self, node: str, neighbours: Mapping[str, int], table: TreeTable | None = None) -> None:
        """A node and the delay in microseconds of the link to each of its neighbours; ``table`` is where it keeps what
        it knows of each tree, builds included."""
        self.node = node
        self.unknown = 0
        self.stale = 0
        self._delays: dict[str, int] = {}
        self._gone: set[str] = set()
        self._table = TreeTable() if table is None else table
        self._forgotten: dict[str, int] = {}
        self._used: dict[str, int] = {}
        """How many times the link to a neighbour was lost and came back."""
        self._heard: dict[str, int] = {}
        """For how many of these the neighbour has said that it uses the link again."""
        self._early: dict[str, list[TreeMessage]] = {}
        """What neighbours have sent that knew before this node that a link is back."""
        for neighbour, delay_us in neighbours.items():
            self._set_delay(neighbour, delay_us)

    # -- what the coordinator orders ----------------------------------------------------------------------------------

    def ordered(self, order: TreeOrder) -> LinkSends:
        """Do what the coordinator orders; an order that was carried out before changes nothing."""
        match order:
            case StartTree(tree, epoch):
                return [*self.start(tree, epoch)]
            case InstallTree(tree, epoch, parent, children):
                self.install(tree, epoch, parent, children)
            case ForgetTree(tree, epoch):
                self.forget(tree, epoch)
            case DropLink(neighbour):
                return [*self.link_gone(neighbour)]
            case UseLink(neighbour, again):
                return self.use_link(neighbour, again)
            case _:
                assert_never(order)
        return []

    def start(self, tree: str, epoch: int) -> Sends:
        """Begin to build the tree whose root this node is."""
        assert tree == self.node, f"{self.node} cannot be the root of the tree of {tree}"
        if self.knows(tree, epoch):
            return []
        if self._is_forgotten(tree, epoch):
            self.unknown += 1
            return []
        build = self._begin(tree, epoch, Build(cost=ROOT_COST))
        return self._offer_to_all(tree, epoch, build)

    def install(self, tree: str, epoch: int, parent: str | None, children: tuple[str, ...]) -> None:
        """Put a computed tree in place; what was negotiated of the same build is void."""
        for neighbour in (*children, *([] if parent is None else [parent])):
            if neighbour not in self._delays:
                raise ConfigError(
                    f"the tree of {tree!r} (epoch {epoch}) makes {neighbour!r} a neighbour of {self.node!r}, to which "
                    "it has no link; give coordinator and nodes the same network"
                )
        if self.is_forgotten(tree, epoch):
            self.unknown += 1
            return
        build = self._begin(tree, epoch, Build(parent=parent, children=set(children)))
        if not self._gone.isdisjoint(children) or parent in self._gone:
            self._break(self._table.record(tree, epoch), build)

    def forget(self, tree: str, epoch: int, why: Input = Input.FORGET) -> None:
        """Free a build. This and earlier epochs of the tree, unless they are known here, cannot begin any more."""
        record = self._table.record(tree, epoch)
        record.build = None
        record.move(why)
        latest = self._forgotten[tree] = max(epoch, self._forgotten.get(tree, epoch))
        self._table.drop_gone_before(tree, latest)

    def link_gone(self, neighbour: str) -> Sends:
        """Use a link no more. Trees it is part of are broken: they can still be read, but no longer change or stand.

        Builds that only await an answer over the link go on without it.
        """
        self._gone.add(neighbour)
        sends: Sends = []
        for record, build in self._builds():
            if neighbour == build.parent or neighbour in build.children:
                self._break(record, build)
            elif build.waiting.pop(neighbour, 0):
                sends += self._settle(record.tree, record.epoch, build)
        return sends

    def link_back(self, neighbour: str, delay_us: int | None = None) -> None:
        """Use a link, perhaps a new one or of another delay, in builds that begin from now on; broken ones stay so."""
        if delay_us is not None:
            self._set_delay(neighbour, delay_us)
        self._gone.discard(neighbour)

    def use_link(self, neighbour: str, again: int) -> LinkSends:
        """The link is back, for the n-th time: tell the neighbour so, and use it.

        The two ends learn of it at different times. What the neighbour sent before it knew is of the time before the
        link was lost, about builds that have gone on without it, and is ignored. What it sends afterwards waits until
        this node knows, too.
        """
        if again <= self._used.get(neighbour, 0):
            return []
        self._used[neighbour] = again
        self._gone.discard(neighbour)
        sends: LinkSends = [(neighbour, LinkAgain(again))]
        for record, build in self._builds():
            # A node that remembers nothing may have made offers before it knew, which were ignored.
            if neighbour in build.waiting and build.cost is not None and not build.broken:
                build.waiting[neighbour] = 1
                sends.append((neighbour, CreateTree(record.tree, record.epoch, *build.cost)))
        if self._heard.get(neighbour, 0) >= again:
            for message in self._early.pop(neighbour, []):
                sends += self.received(neighbour, message)
        return sends

    def link_again(self, neighbour: str, again: int) -> None:
        """The neighbour uses the link again."""
        if again > self._heard.get(neighbour, 0):
            self._heard[neighbour] = again
            self._early.pop(neighbour, None)

    def link_reset(self, neighbour: str) -> LinkSends:
        """The neighbour remembers nothing: builds that it is part of here, or owes an answer to, are broken."""
        for record, build in self._builds():
            if neighbour == build.parent or neighbour in build.children or neighbour in build.waiting:
                self._break(record, build)
        self._early.pop(neighbour, None)
        # It will say again whether it uses the link. What it said before may be known to no other node.
        self._heard[neighbour] = min(self._heard.get(neighbour, 0), self._used.get(neighbour, 0))
        again = self._used.get(neighbour)
        return [] if again is None else [(neighbour, LinkAgain(again))]

    # -- what neighbours say ------------------------------------------------------------------------------------------

    def received(self, neighbour: str, message: TreeMessage) -> Sends:
        """Take a message from a neighbour; what must be sent now."""
        if neighbour not in self._delays:
            self.unknown += 1
            return []
        used, heard = self._used.get(neighbour, 0), self._heard.get(neighbour, 0)
        if heard > used and len(early := self._early.setdefault(neighbour, [])) < EARLY_MAX:
            early.append(message)
            return []
        if neighbour in self._gone or heard != used:
            self.stale += 1
            return []
        match message:
            case CreateTree():
                return self._consider(neighbour, message)
            case TreeAck() | TreeNack():
                return self._note_answer(neighbour, message)
            case _:
                assert_never(message)

    def _consider(self, neighbour: str, offered: CreateTree) -> Sends:
        tree, epoch = offered.tree, offered.epoch
        build = self._build(tree, epoch)
        if build is None:
            if self._is_forgotten(tree, epoch) or tree == self.node:
                return self._refuse_unknown(neighbour, offered)
            return self._adopt(neighbour, offered, self._begin(tree, epoch, Build()))
        if build.broken:
            # No answer: the root must not believe that a tree stands which has lost one of its links.
            self.stale += 1
            return []
        if build.cost is None:
            return self._refuse_unknown(neighbour, offered)
        offer = extended(offered.cost, self._delays[neighbour])
        if neighbour == build.parent:
            if offer > build.cost:  # a parent's way to the root never gets worse: this is an old message
                self.stale += 1
                return []
            if offer < build.cost:
                return self._adopt(neighbour, offered, build)
            # The parent found a way with fewer zero-delay links, which does not show behind a link that takes time.
            build.parent_cost = offered.cost
            build.acknowledged = False
            return self._settle(tree, epoch, build)
        if build.parent is None or (offer, neighbour) > (build.cost, build.parent):
            return [(neighbour, TreeNack(tree, epoch, *offered.cost))]
        return self._adopt(neighbour, offered, build)

    def _adopt(self, neighbour: str, offered: CreateTree, build: Build) -> Sends:
        tree, epoch = offered.tree, offered.epoch
        old_parent, old_parent_cost, old_cost = build.parent, build.parent_cost, build.cost
        build.parent, build.parent_cost = neighbour, offered.cost
        build.cost = extended(offered.cost, self._delays[neighbour])
        build.acknowledged = False
        sends: Sends = []
        if old_parent is not None and old_parent != neighbour:
            assert old_parent_cost is not None
            sends.append((old_parent, TreeNack(tree, epoch, *old_parent_cost)))
            if build.cost == old_cost:
                # The others have this offer already. The old parent gets it so that its refusal tells that it has
                # heard of our leaving.
                build.waiting[old_parent] = build.waiting.get(old_parent, 0) + 1
                sends.append((old_parent, CreateTree(tree, epoch, *build.cost)))
                return sends
        return sends + self._offer_to_all(tree, epoch, build)

    def _offer_to_all(self, tree: str, epoch: int, build: Build) -> Sends:
        assert build.cost is not None
        neighbours = sorted(self._delays.keys() - self._gone - {build.parent})
        build.children.clear()
        build.waiting = dict.fromkeys(neighbours, 1)
        offer = CreateTree(tree, epoch, *build.cost)
        return [*((other, offer) for other in neighbours), *self._settle(tree, epoch, build)]

    def _note_answer(self, neighbour: str, answer: TreeAck | TreeNack) -> Sends:
        build = self._build(answer.tree, answer.epoch)
        if build is None or build.cost is None:
            self.unknown += 1
            return []
        owed = build.waiting.get(neighbour, 0)
        if build.broken or answer.cost != build.cost or not (owed or neighbour in build.children):
            self.stale += 1
            return []
        if owed > 1:
            build.waiting[neighbour] = owed - 1
        elif owed:
            del build.waiting[neighbour]
        if isinstance(answer, TreeAck):
            build.children.add(neighbour)
        else:
            build.children.discard(neighbour)
        return self._settle(answer.tree, answer.epoch, build)

    def _settle(self, tree: str, epoch: int, build: Build) -> Sends:
        """The acknowledgement to the parent, once, when nothing is missing any more."""
        if build.waiting or build.broken or build.acknowledged or build.parent is None:
            return []
        assert build.parent_cost is not None
        build.acknowledged = True
        return [(build.parent, TreeAck(tree, epoch, *build.parent_cost))]

    def _refuse_unknown(self, neighbour: str, offered: CreateTree) -> Sends:
        self.unknown += 1
        return [(neighbour, TreeNack(offered.tree, offered.epoch, *offered.cost))]

    # -- what there is ------------------------------------------------------------------------------------------------

    def knows(self, tree: str, epoch: int) -> bool:
        """Whether this node takes part in the build; only then may parent and children be asked for."""
        return self._build(tree, epoch) is not None

    def parent(self, tree: str, epoch: int) -> str | None:
        """The parent so far (None: this node is the root)."""
        return self._known_build(tree, epoch).parent

    def children(self, tree: str, epoch: int) -> tuple[str, ...]:
        """The children that are settled so far, in order of name."""
        return tuple(sorted(self._known_build(tree, epoch).children))

    def stands(self, tree: str, epoch: int) -> bool:
        """At the root: the whole tree is settled, here and at every other node. Elsewhere always false."""
        build = self._build(tree, epoch)
        return build is not None and tree == self.node and not build.waiting and not build.broken

    def rooted_here(self) -> tuple[TreeName, ...]:
        """The builds (tree, epoch) that have this node as their root."""
        return tuple(record.name for record, _ in self._builds() if record.tree == self.node)

    def is_broken(self, tree: str, epoch: int) -> bool:
        """Whether the build has lost a link that it uses here."""
        build = self._build(tree, epoch)
        return build is not None and build.broken

    def is_forgotten(self, tree: str, epoch: int) -> bool:
        """Whether this or a later build of the tree was taken part in, or ordered to be forgotten, and is no more."""
        return not self.knows(tree, epoch) and self._is_forgotten(tree, epoch)

    def broken(self) -> tuple[TreeName, ...]:
        """The builds (tree, epoch) that lost a link they use here; the coordinator replaces them under a new epoch."""
        return tuple(record.name for record, build in self._builds() if build.broken)

    def table(self) -> list[dict[str, Any]]:
        """Every build in order of (tree, epoch) as plain data: what the coordinator checks and people read."""
        return [
            {
                "tree": record.tree,
                "epoch": record.epoch,
                "state": build.state,
                "parent": build.parent,
                "children": sorted(build.children),
                "sum_us": None if build.cost is None else build.cost[0],
                "zero_hops": None if build.cost is None else build.cost[1],
                "waiting_for": sorted(build.waiting),
            }
            for record, build in self._builds()
        ]

    def validate(self) -> None:
        """Assert what must hold between any two inputs."""
        for record, build in self._builds():
            tree = record.tree
            where = f"{self.node}, tree of {tree}, epoch {record.epoch}"
            assert record.state not in (State.UNKNOWN, State.NAMED, State.GONE), f"{where}: it is {record.state}"
            assert build.broken or record.state != State.BROKEN, f"{where}: it is {record.state}, its links are not"
            assert (build.parent is None) == (tree == self.node), f"{where}: only the root has no parent"
            assert build.parent not in build.children, f"{where}: {build.parent} is parent and child"
            assert build.waiting.keys() | build.children <= self._delays.keys(), f"{where}: a stranger is part of it"
            assert build.broken or not self._gone & (build.waiting.keys() | build.children | {build.parent}), where
            if build.cost is not None and build.parent is not None and not build.broken:
                assert build.parent_cost is not None, where
                assert build.cost > build.parent_cost, f"{where}: no farther than its parent"
                assert build.acknowledged == (not build.waiting), f"{where}: settled and acknowledged must agree"

    # -- to disk and back ---------------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Everything as plain data that msgpack can carry."""
        return {
            "node": self.node,
            "delays": dict(sorted(self._delays.items())),
            "gone": sorted(self._gone),
            "back": [dict(sorted(self._used.items())), dict(sorted(self._heard.items()))],
            "early": [
                [neighbour, type(message).__name__, message.tree, message.epoch, *message.cost]
                for neighbour, messages in sorted(self._early.items())
                for message in messages
            ],
            "forgotten": dict(sorted(self._forgotten.items())),
            "unknown": self.unknown,
            "stale": self.stale,
            "builds": [
                [
                    record.tree,
                    record.epoch,
                    build.parent,
                    None if build.cost is None else list(build.cost),
                    None if build.parent_cost is None else list(build.parent_cost),
                    build.acknowledged,
                    sorted(build.children),
                    dict(sorted(build.waiting.items())),
                    build.broken,
                ]
                for record, build in self._builds()
            ],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the place of the node that was saved; on an error nothing has changed."""
        try:
            node, delays, gone = str(saved["node"]), dict(saved["delays"]), set(saved["gone"])
            used, heard = map(dict, saved["back"])
            early: dict[str, list[TreeMessage]] = {}
            for neighbour, kind, *about in saved["early"]:
                early.setdefault(str(neighbour), []).append(_MESSAGES[kind](*about))
            forgotten, unknown, stale = dict(saved["forgotten"]), int(saved["unknown"]), int(saved["stale"])
            builds: dict[TreeName, Build] = {}
            for tree, epoch, parent, cost, parent_cost, acknowledged, children, waiting, broken in saved["builds"]:
                builds[str(tree), int(epoch)] = Build(
                    parent,
                    _cost(cost),
                    _cost(parent_cost),
                    bool(acknowledged),
                    set(children),
                    dict(waiting),
                    bool(broken),
                )
        except (KeyError, TypeError, ValueError) as error:
            raise TreeStateError(
                f"the saved trees of {self.node!r} are damaged ({error!r}); restart without them"
            ) from error
        if node != self.node:
            raise TreeStateError(f"these are the saved trees of {node!r}, not of {self.node!r}; give each node its own")
        self._delays, self._gone = delays, gone
        self._table.clear()
        for (tree, epoch), build in builds.items():
            self._begin(tree, epoch, build)
            if build.broken:
                self._table.record(tree, epoch).move(Input.CUT)
        self._forgotten, self.unknown, self.stale = forgotten, unknown, stale
        self._used, self._heard, self._early = used, heard, early

    # -- small helpers ------------------------------------------------------------------------------------------------

    def _builds(self) -> list[tuple[TreeRecord, Build]]:
        """The builds that this node takes part in, in order of (tree, epoch)."""
        return self._table.builds()

    def _build(self, tree: str, epoch: int) -> Build | None:
        record = self._table.get(tree, epoch)
        return None if record is None else record.build

    def _known_build(self, tree: str, epoch: int) -> Build:
        build = self._build(tree, epoch)
        assert build is not None, f"{self.node} takes no part in the tree of {tree}, epoch {epoch}"
        return build

    def _begin(self, tree: str, epoch: int, build: Build) -> Build:
        """Take part in a build. One that is installed again, in whatever state, keeps its tasks."""
        record = self._table.record(tree, epoch)
        record.build = build
        if record.accepts(Input.BUILD):
            record.move(Input.BUILD)
        return build

    @staticmethod
    def _break(record: TreeRecord, build: Build) -> None:
        """The build has lost a link that it uses here."""
        if not build.broken:
            build.broken = True
            record.move(Input.CUT)

    def _set_delay(self, neighbour: str, delay_us: int) -> None:
        if neighbour == self.node or delay_us < 0:
            raise ConfigError(
                f"the link from {self.node!r} to {neighbour!r} with a delay of {delay_us} us cannot be: "
                "a link joins two nodes, and its delay is not negative"
            )
        self._delays[neighbour] = delay_us

    def _is_forgotten(self, tree: str, epoch: int) -> bool:
        return epoch <= self._forgotten.get(tree, epoch - 1)


_MESSAGES = {kind.__name__: kind for kind in (CreateTree, TreeAck, TreeNack)}


def _cost(saved: Any) -> Cost | None:
    if saved is None:
        return None
    delay_sum_us, zero_hops = saved
    return int(delay_sum_us), int(zero_hops)
