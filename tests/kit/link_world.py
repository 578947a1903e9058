"""Two ends of a link and a bad network between them, in one process and from a seed."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from headwater.protocol.links.frames import FrameError, decode
from headwater.protocol.links.notifications import Identity, Notification, Received, Refused, Reset
from headwater.protocol.links.session import Phase, Session
from headwater.protocol.links.settings import LinkSettings, PeerState

SETTINGS = LinkSettings(window_bytes=200, frame_bytes_max=4096)


USUAL = ("send", "pump", "pump", "deliver", "deliver", "deliver", "deliver", "confirm", "confirm", "accept", "tick")
FAULTS = 0.02
"""How many steps are faults: often enough to meet each other, rarely enough that links open in between."""


class End:
    """A session and the program above it, which remembers what it sent and what it received in this era."""

    def __init__(self, name: str, peer: str, dials: bool, random: Random) -> None:
        self.name, self.peer, self.dials, self.random = name, peer, dials, random
        self.counters: Counter[str] = Counter()
        self.resets = 0
        self.refusals: list[str] = []
        self.pending_resets = 0
        self.lives = 0
        self.made = 0
        self.saved: list[tuple[PeerState, list[bytes], list[bytes], str]] = []
        self.forget()

    def forget(self) -> None:
        """Everything is lost: another life begins."""
        self.lives += 1
        self.life = f"{self.name}{self.lives}"
        self.saved.clear()
        self._begin(PeerState(), [], [])

    def _begin(self, state: PeerState, sent: list[bytes], received: list[bytes]) -> None:
        self.sent, self.received = sent, received
        self.pending_resets = 0
        self.session = Session(
            Identity(self.name, self.life, "net"),
            self.peer,
            dials=self.dials,
            settings=SETTINGS,
            state=state,
            new_id=lambda: self.random.getrandbits(63) | 1,
            counters=self.counters,
        )

    def save(self) -> None:
        state = self.session.state()
        self.saved.append((state, list(self.sent), self.received[: state.in_seq], self.life))

    def crash(self, lost_tail: bool) -> None:
        """Come back with everything that was confirmed, or with an older memory."""
        if not lost_tail or not self.saved:
            self.save()
            state, sent, received, _ = self.saved.pop()
        else:
            state, sent, received, _ = self.random.choice(self.saved)
            # What is remembered from after that moment did not happen any more.
            self.saved.clear()
        self._begin(state, list(sent), list(received))

    def send(self, count: int) -> None:
        payloads = []
        for _ in range(count):
            self.made += 1
            payloads.append(f"{self.life}:{self.made}:".encode() + b"." * self.random.randrange(80))
        self.sent += payloads
        self.session.send(payloads)

    def confirm(self) -> None:
        if len(self.received) > self.session.state().in_seq:
            self.session.confirm(self.random.randint(self.session.state().in_seq + 1, len(self.received)))

    def accept_reset(self, now: float) -> None:
        if self.pending_resets:
            self.pending_resets -= 1
            # What the program noted before it accepts belongs to the old era, whenever it was said.
            self.sent, self.received = [], []
            self.saved.clear()
            self.take(self.session.accept_reset(now))

    def take(self, notifications: list[Notification]) -> None:
        for each in notifications:
            if isinstance(each, Received):
                self.received += each.payloads
                assert each.last_seq == len(self.received)
            elif isinstance(each, Reset):
                self.resets += 1
                self.pending_resets += 1
            elif isinstance(each, Refused):
                self.refusals.append(each.key)


class World:
    """A dials B. Frames are lost, doubled, and come back from the dead after later connections were made."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.ends = (End("a", "b", True, self.random), End("b", "a", False, self.random))
        self.queues: tuple[deque[bytes], deque[bytes]] = (deque(), deque())  # towards a, towards b
        self.ghosts: list[tuple[int, bytes]] = []
        self.ends[0].session.connect(self.now)

    def pump(self, which: int, most: int = 3) -> None:
        for _ in range(most):
            frame = self.ends[which].session.next_frame(self.now)
            if frame is None:
                return
            self.queues[1 - which].append(frame)

    def arrive(self, which: int, frame: bytes) -> None:
        end = self.ends[which]
        try:
            end.take(end.session.receive(decode(frame), self.now))
        except FrameError:
            raise AssertionError("a frame of ours is not a frame") from None

    def deliver(self, which: int) -> None:
        if self.queues[which]:
            self.arrive(which, self.queues[which].popleft())

    def cut(self) -> None:
        """The connection breaks; what was under way is lost, or comes much later."""
        for which, queue in enumerate(self.queues):
            for frame in queue:
                if self.random.random() < 0.2:
                    self.ghosts.append((which, frame))
            queue.clear()
        if self.random.random() < 0.5:
            end = self.ends[1]
            end.take(end.session.disconnect(self.now, "cut"))

    def restart(self, which: int) -> None:
        """After a crash: the old connections are gone, and a dialer dials."""
        self.cut()
        if which == 0:
            self.ends[0].session.connect(self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for end in self.ends:
            end.take(end.session.tick(self.now))

    def step(self, faults: tuple[str, ...]) -> None:
        random = self.random
        which = random.randrange(2)
        end = self.ends[which]
        what = random.choice(faults if faults and random.random() < FAULTS else USUAL)
        match what:
            case "send":
                end.send(random.randint(1, 4))
            case "pump":
                self.pump(which)
            case "deliver":
                for _ in range(random.randint(1, 4)):
                    self.deliver(which)
            case "confirm":
                end.confirm()
            case "accept":
                end.accept_reset(self.now)
            case "tick":
                self.tick(random.choice((0.1, 0.2, 0.5, 0.5, 0.5, 0.5, 1.0, 3.0)))
            case "drop" | "double" | "ghost":
                self.disturb(which, what)
            case _:
                self.break_down(which, what)

    def disturb(self, which: int, what: str) -> None:
        """What a network may do to frames."""
        random, queue = self.random, self.queues[which]
        match what:
            case "drop":
                if queue:
                    queue.popleft()
            case "double":
                if queue:
                    queue.insert(random.randrange(len(queue) + 1), queue[0])
            case "ghost":
                if self.ghosts:
                    self.arrive(*self.ghosts.pop(random.randrange(len(self.ghosts))))

    def break_down(self, which: int, what: str) -> None:
        """What may happen to connections and processes."""
        end = self.ends[which]
        match what:
            case "cut":
                self.cut()
            case "crash":
                end.crash(lost_tail=False)
                self.restart(which)
            case "both":
                for each in self.ends:
                    each.crash(lost_tail=False)
                self.restart(0)
            case "save":
                end.save()
            case "lost tail":
                end.crash(lost_tail=True)
                self.restart(which)
            case "amnesia":
                end.forget()
                self.restart(which)

    def heal(self) -> None:
        """No more faults: everything that can arrive does."""
        for _ in range(400):
            for which in (0, 1):
                self.pump(which, 100)
                while self.queues[which]:
                    self.deliver(which)
                    self.pump(which, 100)
                self.ends[which].accept_reset(self.now)
                if len(self.ends[which].received) > self.ends[which].session.state().in_seq:
                    self.ends[which].session.confirm(len(self.ends[which].received))
            self.tick(0.3)
            if self.is_settled():
                return
        raise AssertionError("the ends do not come to rest")

    def is_settled(self) -> bool:
        a, b = (end.session for end in self.ends)
        return all(
            session.phase is Phase.OPEN and session.is_up and session.queued == (0, 0) for session in (a, b)
        ) and not any(end.pending_resets for end in self.ends)

    def check(self) -> None:
        a, b = self.ends
        assert a.received == b.sent
        assert b.received == a.sent
        left, right = a.session.state(), b.session.state()
        assert left.era == right.era
        assert (left.life, right.life) == (b.life, a.life)
        assert (left.out_seq, left.in_seq) == (right.in_seq, right.out_seq)
        assert not a.refusals
        assert not b.refusals
