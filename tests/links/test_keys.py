"""Keys: made, read, refused; and links on which only those with a known key are heard."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from headwater.protocol.errors import ConfigError
from headwater.protocol.links import Keys, LinkSettings, make_keys
from tests.kit.link_ends import Ends, closed, run, strangers, until
from tests.links.test_hub import LOOPS, address_of, an_offer, dealer, numbered


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    make_keys(made, ["a", "b", "laptop", "@coordinator"])
    return made


# -- files


def test_secret_keys_are_for_their_owner_only(folder: Path) -> None:
    for name in ("a", "b", "laptop", "@coordinator"):
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
        assert (folder / f"{name}.pub").exists()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_keys_that_exist_stay_as_they_are(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert make_keys(folder, ["a", "b", "c"]) == ["c"]
    assert {name: (folder / name).read_bytes() for name in before} == before
    (folder / "a.pub").unlink()  # the secret half is enough to make it again
    assert make_keys(folder, ["a"]) == []
    assert (folder / "a.pub").read_bytes() == before["a.pub"]
    (folder / "b.key").unlink()  # the secret half may live on another machine
    assert make_keys(folder, ["b"]) == []
    assert not (folder / "b.key").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_key_that_others_can_read_is_refused(folder: Path, mode: int) -> None:
    (folder / "a.key").chmod(mode)
    with pytest.raises(ConfigError, match=r"others can read this secret key.*chmod 600"):
        Keys.read(folder, "a")


def test_missing_and_broken_keys_are_said_with_their_file(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.key: the secret key cannot be read"):
        Keys.read(folder, "absent")
    for content in (b"", b"too short", bytes(40), b"x" * 32):
        (folder / "b.pub").write_bytes(content)
        with pytest.raises(ConfigError, match=r"b\.pub: this is not a key"):
            Keys.read(folder, "a")


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a b", "-x", "x" * 200])
def test_a_name_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a key"):
        make_keys(tmp_path / "keys", ["good", name])
    assert not (tmp_path / "keys").exists()


def test_keys_know_their_own_and_those_of_others(folder: Path) -> None:
    keys = Keys.read(folder, "a")
    assert keys.public_key == (folder / "a.pub").read_text().strip()
    assert keys.public_key_of("b") == (folder / "b.pub").read_text().strip()
    assert keys.public_key_of("@client/laptop") == (folder / "laptop.pub").read_text().strip()
    assert keys.public_key_of("absent") is None


# -- links


async def listening(folder: Path, *peers: str) -> tuple[Ends, str]:
    b = Ends("b", keys=Keys.read(folder, "b"))
    for peer in peers:
        b.hub.add_peer(peer, dial=None)
    address = await b.hub.start("tcp://127.0.0.1:0")
    assert address is not None
    return b, address


@LOOPS
def test_peers_with_keys_talk(folder: Path, loop: str) -> None:
    async def test() -> None:
        b, address = await listening(folder, "a", "@coordinator")
        ends = [Ends("a", keys=Keys.read(folder, "a")), Ends("@coordinator", keys=Keys.read(folder, "@coordinator"))]
        for end in ends:
            end.hub.add_peer("b", dial=address)
            end.hub.send("b", numbered(100))
            await end.hub.start(None)
            await until(lambda name=end.hub.name: b.got(name) == numbered(100))  # type: ignore[misc]
        assert not b.hub.counters["refused_unknown_key"]
        await closed(*ends, b)

    run(test(), loop)


def test_with_keys_a_hub_listens_beyond_this_machine(folder: Path) -> None:
    async def test() -> None:
        b = Ends("b", keys=Keys.read(folder, "b"))
        b.hub.add_peer("a", dial=None)
        address = await b.hub.start("tcp://0.0.0.0:0")
        assert address is not None
        a = Ends("a", keys=Keys.read(folder, "a"))
        a.hub.add_peer("b", dial=address.replace("0.0.0.0", "127.0.0.1"))
        await a.hub.start(None)
        await until(lambda: a.hub.is_up("b"))
        await closed(a, b)

    run(test())


def test_an_unknown_key_gets_nothing(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A process that knows the public keys of the network and made itself a key of the right name."""
    forged = tmp_path / "forged"
    make_keys(forged, ["a"])
    (forged / "b.pub").write_bytes((folder / "b.pub").read_bytes())

    async def test() -> None:
        b, address = await listening(folder, "a")
        a, thief = Ends("a", keys=Keys.read(folder, "a")), Ends("a", keys=Keys.read(forged, "a"))
        for end in (thief, a):
            end.hub.add_peer("b", dial=address)
            end.hub.send("b", [b"from the thief" if end is thief else b"from a"])
            await end.hub.start(None)
        await until(lambda: b.hub.counters["refused_unknown_key"] and b.got("a"))
        assert b.got("a") == [b"from a"]
        assert b.hub.counters["frames_in"] == b.hub.traffic("a").frames_in  # not one frame of the other came in
        assert thief.log == []
        assert thief.hub.counters["frames_in"] == 0
        await closed(a, thief, b)

    run(test())
    assert len([each for each in caplog.records if "no key that is known here" in each.getMessage()]) == 1


def test_a_process_without_any_key_gets_nothing(folder: Path) -> None:
    async def test() -> None:
        b, address = await listening(folder, "a")
        plain = Ends("a")
        plain.hub.add_peer("b", dial=address)
        plain.hub.send("b", [b"let me in"])
        await plain.hub.start(None)
        with strangers() as context:
            stranger = dealer(context, address)
            for _ in range(100):
                stranger.send(an_offer())
            a = Ends("a", keys=Keys.read(folder, "a"))
            a.hub.add_peer("b", dial=address)
            a.hub.send("b", [b"from a"])
            await a.hub.start(None)
            await until(lambda: b.got("a") == [b"from a"])
            await asyncio.sleep(0.2)
            stranger.close(0)
        assert b.hub.counters["frames_in"] == b.hub.traffic("a").frames_in
        assert plain.log == []
        await closed(a, plain, b)

    run(test())


def test_a_known_key_does_not_make_another_of_its_owner(folder: Path) -> None:
    async def test() -> None:
        b, address = await listening(folder, "a")
        liar = Ends("a", keys=Keys.read(folder, "laptop"))
        liar.hub.add_peer("b", dial=address)
        liar.hub.send("b", [b"a says"])
        await liar.hub.start(None)
        await until(lambda: b.hub.counters["refused_key"] and liar.hub.counters["refused_by_peer"])
        assert b.got("a") == []
        assert liar.log == []
        await closed(liar, b)

    run(test())


def test_a_process_that_is_dialed_must_have_the_key_of_its_name(folder: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    make_keys(forged, ["b"])
    (forged / "a.pub").write_bytes((folder / "a.pub").read_bytes())

    async def test() -> None:
        thief, address = await listening(forged, "a")
        a = Ends("a", keys=Keys.read(folder, "a"))
        a.hub.add_peer("b", dial=address)
        a.hub.send("b", [b"secret"])
        await a.hub.start(None)
        await asyncio.sleep(0.5)
        assert thief.hub.counters["frames_in"] == 0
        assert a.log == []
        with pytest.raises(ConfigError, match=r"no public key of 'absent'.*absent\.pub"):
            a.hub.add_peer("absent", dial=address)
        assert a.hub.peers() == ["b"]
        await closed(a, thief)

    run(test())


def test_a_client_has_the_key_of_its_own_name_and_a_new_one_needs_no_restart(folder: Path) -> None:
    async def test() -> None:
        b, address = await listening(folder)
        seen: list[tuple[str, str | None]] = []

        def admit(name: str, key_name: str | None) -> LinkSettings:
            seen.append((name, key_name))
            return LinkSettings()

        b.admits = admit
        elsewhere = folder.parent / "elsewhere"
        make_keys(elsewhere, ["phone"])
        (elsewhere / "b.pub").write_bytes((folder / "b.pub").read_bytes())
        clients = [
            Ends("@client/laptop", keys=Keys.read(folder, "laptop")),
            Ends("@client/phone", keys=Keys.read(elsewhere, "phone")),
        ]
        for client in clients:
            client.hub.add_peer("b", dial=address)
            await client.hub.start(None)
            if client is clients[1]:  # it dials before the hub knows it
                await until(lambda: b.hub.counters["refused_unknown_key"])
                (folder / "phone.pub").write_bytes((elsewhere / "phone.pub").read_bytes())
            await until(lambda client=client: client.hub.is_up("b"))  # type: ignore[misc]
        assert seen == [("@client/laptop", "laptop"), ("@client/phone", "phone")]
        await closed(*clients, b)

    run(test())


def test_a_key_can_be_given_with_its_peer_instead_of_lying_in_a_folder(folder: Path) -> None:
    async def test() -> None:
        secret_a, secret_b = ((folder / f"{name}.key").read_bytes().strip() for name in ("a", "b"))
        public_a, public_b = ((folder / f"{name}.pub").read_text().strip() for name in ("a", "b"))
        a, b = Ends("a", keys=Keys("a", secret_a, {})), Ends("b", keys=Keys("b", secret_b, {}))
        b.hub.add_peer("a", dial=None, public_key=public_a)
        address = await b.hub.start("tcp://127.0.0.1:0")
        a.hub.add_peer("b", dial=address, public_key=public_b.encode())
        await a.hub.start(None)
        await until(lambda: a.hub.is_up("b"))
        with pytest.raises(ConfigError, match="40 characters"):
            a.hub.add_peer("c", dial=address, public_key=b"short")
        assert address_of(b) == address
        await closed(a, b)

    run(test())


# -- the command


def test_the_command_makes_keys_for_names_and_for_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.deploy.cli.command import main

    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text("events: {A: {x: int}}\nnodes: [n1, n2]\nlinks: [{between: [n1, n2]}]\n")

    def headwater(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, said.out + said.err

    code, text = headwater("keys", "keys", "phone", "--network", "net.yaml")
    assert code == 0
    assert sorted(file.name for file in Path("keys").iterdir()) == sorted(
        f"{name}.{end}" for name in ("phone", "n1", "n2", "@coordinator") for end in ("key", "pub")
    )
    assert "n1" in text
    assert (Path("keys") / "n1.key").read_text().strip() not in text
    assert headwater("keys", "keys", "phone") == (0, "all names have keys already\n")
    code, text = headwater("keys", "keys")
    assert code == 2
    assert "give names" in text
    code, text = headwater("keys", "keys", "../x")
    assert code == 2
    assert "cannot be the name of a key" in text
