"""One link end as a state machine: frames and their check, numbers, resume, credit, resets, in any order of faults."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from headwater.protocol.links.frames import (
    OFFER,
    START,
    Kind,
    decode,
)
from headwater.protocol.links.notifications import Acknowledged, Down, Identity, Received
from headwater.protocol.links.numbering import Incoming, Outgoing, digest_with
from headwater.protocol.links.session import Phase, Session
from headwater.protocol.links.settings import LinkError, LinkSettings
from tests.kit.link_world import World

SEEDS = int(os.environ.get("HEADWATER_LINK_SEEDS", "100"))
STEPS = 1000

NETWORK_FAULTS = ("drop", "double", "ghost", "cut")
CRASHES = ("crash", "crash", "both")


def run_world(seed: int, faults: tuple[str, ...]) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step(faults)
    world.heal()
    world.check()
    return world


# -- the property


@pytest.mark.parametrize("faults", [(), NETWORK_FAULTS, CRASHES, NETWORK_FAULTS + CRASHES], ids=str)
def test_without_loss_of_memory_everything_arrives_once_in_order_and_nothing_is_ever_reset(
    faults: tuple[str, ...],
) -> None:
    delivered = 0
    for seed in range(SEEDS):
        world = run_world(seed, faults)
        assert [end.resets for end in world.ends] == [0, 0], f"seed {seed}"
        delivered += sum(len(end.received) for end in world.ends)
    assert delivered > SEEDS * 20


@pytest.mark.parametrize(
    "losses", [("amnesia",), ("save", "save", "lost tail"), ("save", "save", "lost tail", "amnesia")], ids=str
)
def test_lost_memory_resets_both_ends_or_changes_nothing(losses: tuple[str, ...]) -> None:
    resets = Counter[str]()
    for seed in range(SEEDS):
        world = run_world(seed, NETWORK_FAULTS + CRASHES + losses)
        for end in world.ends:
            resets[end.name] += end.resets
    assert min(resets["a"], resets["b"]) > SEEDS / 2  # the faults must really have been there


# -- lost memory, one order after the other


def settled_world(sent: int = 6) -> World:
    world = World(1)
    world.heal()
    world.ends[0].send(sent)
    world.ends[1].send(sent)
    world.heal()
    world.check()
    return world


@pytest.mark.parametrize("which", [0, 1], ids=["the dialer", "the other end"])
def test_an_end_that_no_longer_remembers_what_it_confirmed_resets_both(which: int) -> None:
    world = settled_world()
    end, other = world.ends[which], world.ends[1 - which]
    end.save()
    other.send(3)
    world.heal()  # the end confirms them, and then forgets
    end.crash(lost_tail=True)
    world.restart(which)
    world.heal()
    world.check()
    assert [each.resets for each in world.ends] == [1, 1]
    assert end.received == other.sent == []


@pytest.mark.parametrize("which", [0, 1], ids=["the dialer", "the other end"])
def test_numbers_given_to_something_else_after_a_lost_tail_are_noticed(which: int) -> None:
    world = settled_world()
    end = world.ends[which]
    end.save()
    end.send(3)
    world.heal()
    end.crash(lost_tail=True)
    end.send(5)  # more than the other has received: the numbers alone do not show it
    world.restart(which)
    world.heal()
    world.check()
    assert [each.resets for each in world.ends] == [1, 1]


@pytest.mark.parametrize("which", [0, 1], ids=["the dialer", "the other end"])
def test_a_new_life_keeps_what_it_sends_and_its_peer_is_told(which: int) -> None:
    world = settled_world()
    world.ends[which].forget()
    world.ends[which].send(2)
    world.ends[1 - which].send(2)
    world.restart(which)
    world.heal()
    world.check()
    assert world.ends[which].resets == 0
    assert world.ends[1 - which].resets == 1
    assert len(world.ends[1 - which].received) == 2
    assert world.ends[1 - which].sent == []


@pytest.mark.parametrize("which", [0, 1], ids=["the dialer", "the other end"])
def test_a_reset_that_one_end_lost_with_its_memory_is_followed_by_another_on_both(which: int) -> None:
    world = settled_world()
    end, other = world.ends[which], world.ends[1 - which]
    end.save()
    before = end.saved[-1]
    other.send(2)
    world.heal()
    end.crash(lost_tail=True)
    world.restart(which)
    world.heal()
    assert [each.resets for each in world.ends] == [1, 1]
    other.send(4)
    world.heal()
    end.saved = [before]  # as if the reset had never been written down
    end.crash(lost_tail=True)
    world.restart(which)
    world.heal()
    world.check()
    assert [each.resets for each in world.ends] == [2, 2]


def test_what_was_received_and_not_confirmed_is_sent_again_after_a_crash() -> None:
    world = settled_world(0)
    a, b = world.ends
    a.send(3)
    world.pump(0)
    world.deliver(1)
    assert len(b.received) == 3
    b.crash(lost_tail=False)
    assert b.received == []
    world.restart(1)
    world.heal()
    world.check()
    assert b.received == a.sent
    assert a.counters["resent"] == 3


def test_a_reconnect_sends_only_what_did_not_arrive() -> None:
    world = settled_world(0)
    a, b = world.ends
    a.send(3)
    world.pump(0)
    world.deliver(1)
    a.send(2)
    world.cut()
    world.tick(3.0)
    world.heal()
    world.check()
    assert len(b.received) == 5
    assert b.counters["duplicates"] == 0


def test_a_frame_of_an_earlier_session_changes_nothing() -> None:
    world = settled_world(0)
    a, b = world.ends
    a.send(2)
    frame = a.session.next_frame(world.now)
    assert frame is not None
    old = decode(frame)
    b.forget()  # numbering begins anew: number 1 is expected again
    world.restart(1)
    world.heal()
    assert b.session.receive(old, world.now) == []
    assert b.received == []


def test_hellos_that_come_back_from_the_dead_do_not_open_a_session_with_a_restarted_peer() -> None:
    """Those of a reset are the dangerous ones: they ask for nothing that the peer would have to remember."""
    world = settled_world()
    a, b = world.ends
    b.forget()
    world.restart(1)
    world.tick(3.0)  # the dialer hears nothing any more
    said: list[bytes] = []
    for _ in range(20):
        world.tick(0.3)
        while (frame := a.session.next_frame(world.now)) is not None:
            said.append(frame)
            world.arrive(1, frame)
        while (frame := b.session.next_frame(world.now)) is not None:
            world.arrive(0, frame)
        a.accept_reset(world.now)
    assert a.session.phase is b.session.phase is Phase.OPEN
    hellos = [frame for frame in said if decode(frame).kind is Kind.HELLO][-2:]
    assert [decode(frame).step for frame in hellos] == [OFFER, START]
    assert decode(hellos[1]).body.verdict
    b.forget()
    for frame in hellos:
        world.arrive(1, frame)
    assert b.session.phase is not Phase.OPEN
    world.restart(1)
    world.heal()
    world.check()
    assert a.resets == 2


# -- one session, by hand


def a_pair(**settings: object) -> tuple[Session, Session]:
    ids = iter(range(1, 1000))
    made = [
        Session(
            Identity(name, f"life of {name}", "net"),
            peer,
            dials=name == "a",
            settings=LinkSettings(**settings),  # type: ignore[arg-type]
            new_id=lambda: next(ids),
            counters=Counter(),
        )
        for name, peer in (("a", "b"), ("b", "a"))
    ]
    return made[0], made[1]


def exchange(a: Session, b: Session, now: float = 0.0) -> list[object]:
    """Carry frames to and fro until both have nothing to say; gives what happened."""
    happened: list[object] = []
    for _ in range(100):
        frames = [(b, a.next_frame(now)), (a, b.next_frame(now))]
        for to, frame in frames:
            if frame is not None:
                happened += to.receive(decode(frame), now)
        if frames == [(b, None), (a, None)]:
            return happened
    raise AssertionError("they do not stop talking")


def opened(**settings: object) -> tuple[Session, Session]:
    a, b = a_pair(**settings)
    a.connect(0.0)
    exchange(a, b)
    assert a.phase is b.phase is Phase.OPEN
    return a, b


def test_small_payloads_share_a_frame() -> None:
    a, _ = opened()
    a.send([b"%d" % number for number in range(1000)])
    frame = a.next_frame(0.0)
    assert frame is not None
    assert decode(frame).body == [b"%d" % number for number in range(1000)]
    assert a.next_frame(0.0) is None


def test_frames_stay_below_their_bound_and_a_larger_payload_is_refused_to_its_sender() -> None:
    a, _ = opened(frame_bytes_max=2000)
    a.send([bytes(500)] * 20)
    while (frame := a.next_frame(0.0)) is not None:
        assert len(frame) <= 2000
    before = a.queued
    with pytest.raises(LinkError, match="does not fit into a frame"):
        a.send([bytes(10), bytes(2000)])
    assert a.queued == before


def test_nothing_is_acknowledged_before_it_is_confirmed() -> None:
    a, b = opened()
    a.send([b"x", b"y"])
    assert exchange(a, b) == [Received(2, [b"x", b"y"])]
    assert a.queued == (2, 2)
    b.confirm(1)
    assert exchange(a, b) == [Acknowledged(1)]
    assert a.queued == (1, 1)


def test_no_more_is_under_way_than_the_window_and_credit_comes_back_with_confirming_alone() -> None:
    a, b = opened(window_bytes=100)
    a.send([bytes(40)] * 5)
    (received,) = exchange(a, b)
    assert received == Received(2, [bytes(40)] * 2)
    b.send([bytes(40)] * 1000)  # its own buffer is of no account
    b.confirm(1)
    assert Received(3, [bytes(40)]) in exchange(a, b)


def test_a_payload_larger_than_the_window_still_passes() -> None:
    a, b = opened(window_bytes=10)
    a.send([bytes(100), bytes(100)])
    assert exchange(a, b) == [Received(1, [bytes(100)])]
    b.confirm(1)
    assert exchange(a, b) == [Acknowledged(1), Received(2, [bytes(100)])]


def test_an_idle_link_says_something_and_a_silent_peer_is_down() -> None:
    a, b = opened()
    assert a.tick(0.5) == []
    frame = a.next_frame(0.5)
    assert frame is not None
    assert decode(frame).kind is Kind.HEARTBEAT
    b.receive(decode(frame), 0.5)
    assert b.tick(2.4) == []
    assert b.tick(2.6) == [Down("nothing heard for 2.1 s")]
    assert not b.is_up


def test_a_process_that_was_stopped_itself_does_not_call_its_peer_silent() -> None:
    a, _ = opened()
    assert a.tick(30.0, paused_s=29.5) == []
    assert a.is_up


def test_a_live_peer_that_lost_a_frame_gets_it_again() -> None:
    a, b = opened()
    a.send([b"lost"])
    assert a.next_frame(0.0) is not None  # and it is not carried
    happened: list[object] = []
    for now in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5):
        happened += a.tick(now) + b.tick(now) + exchange(a, b, now)
    assert happened == [Received(1, [b"lost"])]


def test_a_live_peer_that_only_does_not_confirm_gets_nothing_twice() -> None:
    a, b = opened()
    a.send([b"slow"])
    happened: list[object] = []
    for tenth in range(0, 1200, 5):
        happened += a.tick(tenth / 10) + b.tick(tenth / 10) + exchange(a, b, tenth / 10)
    assert happened == [Received(1, [b"slow"])]


def test_what_comes_after_a_gap_is_refused_and_everything_is_sent_again() -> None:
    a, b = opened()
    a.send([b"1"])
    assert a.next_frame(0.0) is not None  # lost
    a.send([b"2"])
    assert exchange(a, b, 2.0) == [Received(2, [b"1", b"2"])]
    assert b._counters["gaps"] == 1
    assert b.is_up


def test_a_dialer_asks_again_until_it_is_answered_but_not_ever_faster() -> None:
    a, _ = a_pair()
    a.connect(0.0)
    said = 0
    for tenth in range(600):
        a.tick(tenth / 10)
        while a.next_frame(tenth / 10) is not None:
            said += 1
    assert 10 < said < 25


def test_state_is_plain_and_a_session_goes_on_from_it() -> None:
    a, b = opened()
    a.send([b"1", b"2", b"3"])
    b.send([b"x"])
    exchange(a, b)
    b.confirm(2)
    a.confirm(1)
    exchange(a, b)
    state = a.state()
    assert (state.out_acknowledged, state.unacknowledged, state.in_seq, state.out_seq) == (2, (b"3",), 1, 3)
    again = Session(a.me, "b", dials=True, settings=LinkSettings(), state=state, new_id=lambda: 77, counters=Counter())
    again.connect(1.0)
    assert again.state() == state
    again.send([b"4"])
    assert [each for each in exchange(again, b, 1.0) if isinstance(each, Received)] == [Received(4, [b"4"])]


def test_a_journal_read_again_gives_the_same_numbers_without_any_snapshot() -> None:
    a, b = opened()
    a.send([b"1", b"2"])
    b.send([b"x", b"y"])
    exchange(a, b)
    b.confirm(2)
    a.confirm(2)
    exchange(a, b)
    again = Session(a.me, "b", dials=True, settings=LinkSettings(), new_id=lambda: 77, counters=Counter())
    again.send([b"1", b"2"])
    again.replay_received([b"x", b"y"])
    again.send([b"3"])
    again.connect(1.0)
    happened = exchange(again, b, 1.0)
    assert Received(3, [b"3"]) in happened
    assert not again._counters["resets"]
    assert again.state().in_digest == a.state().in_digest


# -- numbers


def test_digests_tell_two_payloads_from_their_concatenation() -> None:
    assert digest_with(b"c", digest_with(b"ab", 0)) != digest_with(b"bc", digest_with(b"a", 0))


def test_outgoing_digests_belong_to_their_numbers() -> None:
    out = Outgoing()
    out.add([b"a", b"b", b"c"])
    wanted = [0]
    for payload in (b"a", b"b", b"c"):
        wanted.append(digest_with(payload, wanted[-1]))
    out.take(100, 5)
    assert [out.digest_at(number) for number in range(4)] == wanted
    out.acknowledge(2)
    assert [out.digest_at(number) for number in (2, 3)] == wanted[2:]
    assert out.first_digest == wanted[2]


def test_incoming_drops_what_it_has_and_refuses_gaps() -> None:
    incoming = Incoming()
    assert incoming.accept(1, [b"a", b"b"]) == [b"a", b"b"]
    assert incoming.accept(1, [b"a", b"b", b"c"]) == [b"c"]
    assert incoming.accept(2, [b"b"]) == []
    assert incoming.accept(5, [b"e"]) is None
    assert incoming.received == 3
