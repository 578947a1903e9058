"""Where a node asks for elements of remote tables, and which neighbours wait for its answers.

A node that does not reach a table asks the next node on the way to the nearest one that does, and so on; each of them
answers from what it has at hand, and keeps what comes for the next question. Whatever is asked for is asked for once,
however many wait for it. The plan says where ways lead; they never lead in a circle, so a question that follows the
newest plan at every node comes to a provider. When a plan changes, what is outstanding follows it.

A node that reaches a table may have a neighbour to ask first, which looks into the same table. That one answers from
what it has at hand or under way, and says at once if that is nothing; if it says nothing in time, the provider is
asked, and the neighbour is asked no more until it has said something. One that mostly refuses is seldom asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headwater.node.effects import Fetch
from headwater.node.engine.remote_memory import MISSING, Key, Place
from headwater.node.remote.encoding import decode_elements, encode_elements
from headwater.node.remote.memory import Memory
from headwater.node.step import Work
from headwater.protocol.messages.plans import TableWay
from headwater.protocol.messages.remote import ElementAnswer, ElementRefusal, ElementRequest
from headwater.protocol.remote import Versions

RELAYED_MAX: Final = 100_000  # elements that neighbours wait for; as many as a node itself waits for before sources do
SILENCE_US: Final = 20_000  # how long a neighbour that is asked first may take beside the link there and back

REFUSED_MAX: Final = 32  # elements in a row that a neighbour refuses before it is seldom asked first
SELDOM: Final = 16  # then it is asked for one element of so many

Element = tuple[str, Key, Versions | None]


class Relay:
    """The questions of one node: its own, and those that it passes on."""

    def __init__(self, memory: Memory, neighbours: Mapping[str, int]) -> None:
        """``neighbours`` with the configured delay of the link to each, in microseconds."""
        self._memory = memory
        self._delays_us = dict(neighbours)
        self._ways: dict[str, TableWay] | None = None
        """Of tables that are not simply asked for at their providers; None before the first plan."""
        self.asked: dict[Place, str] = {}
        """Elements under way that a neighbour was asked for, and which."""
        self._until_us: dict[Place, int] = {}
        """Of these, what a provider is asked for if the neighbour says nothing until then."""
        self.stranded: dict[Place, None] = {}
        """Elements that no node that is left reaches. They are asked for when a plan gives a way."""
        self.askers: dict[Place, dict[str, None]] = {}
        """The neighbours that wait for each element."""
        self._silent: dict[str, None] = {}
        """Neighbours that are not asked first, because they did not answer in time."""
        self._refusals: dict[str, int] = {}
        """By neighbour that is asked first, how many elements in a row it has refused, or was not asked for."""

    # --------------------------------------------------------------------------------------------------------- asking

    def ask(self, places: Iterable[Place], work: Work) -> None:
        """Have elements fetched, each from where it can be had."""
        of_provider: list[Place] = []
        of_neighbours: dict[tuple[str, bool], list[Place]] = {}
        for place in places:
            way = TableWay(place[0], "") if self._ways is None else self._ways.get(place[0])
            first = way is not None and way.reached
            if way is None or (first and not self._may_have(way.neighbour)):
                of_provider.append(place)
            elif not way.neighbour:
                self.stranded[place] = None
            else:
                self.asked[place] = way.neighbour
                of_neighbours.setdefault((way.neighbour, first), []).append(place)
        for (neighbour, first), some in of_neighbours.items():
            if first:
                until_us = work.now_us + 2 * self._delays_us.get(neighbour, 0) + SILENCE_US
                self._until_us |= dict.fromkeys(some, until_us)
                work.timer("silence", until_us)
            work.send(neighbour, ElementRequest(_packed(some), at_hand=first))
        if of_provider:
            work.effects.append(Fetch(tuple(of_provider)))

    def _may_have(self, neighbour: str) -> bool:
        """Whether it is worth while to ask a neighbour before the provider."""
        refused = self._refusals.get(neighbour, 0)
        if refused >= REFUSED_MAX:
            self._refusals[neighbour] = refused + 1
        return neighbour not in self._silent and (refused < REFUSED_MAX or refused % SELDOM == 0)

    def follow(self, ways: Iterable[TableWay], work: Work) -> None:
        """A new plan: what is outstanding goes its ways. Where the way is the same, the neighbour has the question."""
        before, self._ways = self._ways, {way.table: way for way in ways}
        changed = [
            place
            for place in [*self.asked, *self.stranded]
            if before is None or before.get(place[0]) != self._ways.get(place[0])
        ]
        self._ask_again(changed, work)

    def link_reset(self, neighbour: str, work: Work) -> None:
        """The neighbour has forgotten what it was asked for, and waits for nothing any more."""
        self._silent.pop(neighbour, None)
        for place, waiting in list(self.askers.items()):
            waiting.pop(neighbour, None)
            if not waiting:
                del self.askers[place]
        self._ask_again([place for place, asked in self.asked.items() if asked == neighbour], work)

    def silence(self, work: Work) -> None:
        """Neighbours that were asked first and have said nothing in time: providers are asked."""
        late = [place for place, until_us in self._until_us.items() if until_us <= work.now_us]
        for place in late:
            self._silent[self.asked[place]] = None
        if late:
            work.report("silent_neighbours", len(late))
        self._ask_provider(late, work)
        if self._until_us:
            work.timer("silence", min(self._until_us.values()))

    def is_fetched_here(self, place: Place) -> bool:
        """Whether an element that is under way comes from a provider, as far as was asked."""
        return place not in self.asked and place not in self.stranded

    def unreachable(self) -> list[str]:
        """The tables that something waits for and no node that is left reaches."""
        return sorted({table for table, _ in self.stranded}) if self._ways is not None else []

    def _ask_again(self, places: list[Place], work: Work) -> None:
        for place in places:
            self._let_go(place)
        self.ask(places, work)

    def _ask_provider(self, places: list[Place], work: Work) -> None:
        for place in places:
            self._let_go(place)
        if places:
            work.effects.append(Fetch(tuple(places)))

    def _let_go(self, place: Place) -> None:
        self.asked.pop(place, None)
        self._until_us.pop(place, None)
        self.stranded.pop(place, None)

    # ------------------------------------------------------------------------------------------------------ answering

    def requested(self, neighbour: str, request: ElementRequest, work: Work) -> None:
        """A neighbour needs elements: those that are at hand it gets at once, the others are asked for."""
        given: list[Element] = []
        refused: list[Place] = []
        wanted: list[Place] = []
        for place in _places(request.places):
            element = self._memory.at_hand(place)
            if element is not MISSING:
                given.append((*place, element))
            elif not self._takes(place, first=request.at_hand):
                refused.append(place)
            else:
                self.askers.setdefault(place, {})[neighbour] = None
                if self._memory.relay(place):
                    wanted.append(place)
        if given:
            work.send(neighbour, ElementAnswer(encode_elements(given)))
        if refused:
            work.send(neighbour, ElementRefusal(_packed(refused)))
        if wanted:
            self.ask(wanted, work)

    def _takes(self, place: Place, *, first: bool) -> bool:
        if first:
            return place in self._memory.under_way and self.is_fetched_here(place)
        return place in self.askers or len(self.askers) < RELAYED_MAX

    def came(self, elements: Iterable[Element], work: Work) -> None:
        """Elements have come: neighbours that wait for them get them."""
        given: dict[str, list[Element]] = {}
        for table, key, element in elements:
            place = (table, key)
            self._let_go(place)
            if place in self.askers:
                dated = self._memory.dated(place, element, self._memory.time_us())
                for neighbour in self.askers.pop(place):
                    given.setdefault(neighbour, []).append((table, key, dated))
        for neighbour, some in given.items():
            work.send(neighbour, ElementAnswer(encode_elements(some)))

    def answered(self, neighbour: str, answer: ElementAnswer) -> list[Element]:
        """What a neighbour has sent; a ValueError if that is no elements."""
        self._silent.pop(neighbour, None)
        self._refusals.pop(neighbour, None)
        return decode_elements(answer.elements)

    def refused(self, neighbour: str, refusal: ElementRefusal, work: Work) -> list[Place]:
        """A neighbour does not get these elements. Providers are asked for those that can be had from them here; the
        others are returned, to be asked for again later."""
        self._silent.pop(neighbour, None)
        places = [place for place in _places(refusal.places) if self.asked.get(place) == neighbour]
        first = [place for place in places if place in self._until_us]
        if first and (refused := self._refusals.get(neighbour, 0)) < REFUSED_MAX:
            self._refusals[neighbour] = min(REFUSED_MAX, refused + len(first))
        self._ask_provider(first, work)
        later = [place for place in places if place not in first]
        for place in later:
            self._let_go(place)
        return later


def _packed(places: Iterable[Place]) -> bytes:
    return encode_elements((*place, None) for place in places)


def _places(packed: bytes) -> list[Place]:
    return [(table, key) for table, key, _ in decode_elements(packed)]
