"""The keys of a network, which identify its processes on links that leave a machine.

A folder holds `NAME.pub` for every process and `NAME.key` for those on this machine. Both are one line of 40
characters (Z85 of a CURVE25519 key). A client program `@client/NAME` has the key NAME.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from headwater.protocol.errors import ConfigError
from headwater.protocol.files import write_file

CLIENT: Final = "@client/"
DOMAIN: Final = b"headwater"

_NAME: Final = re.compile(r"@?[^\W_][\w.\-]{0,99}")


def raw_key(key: bytes | str) -> bytes:
    """The 32 bytes of a key, given as such or as its 40 characters."""
    text = key.encode() if isinstance(key, str) else key
    if len(text) == 32:
        return text
    try:
        raw = z85.decode(text) if len(text) == 40 else b""
    except Exception:
        raw = b""
    if len(raw) != 32:
        raise ConfigError("a public key has 40 characters, as `headwater keys` writes them; this one does not")
    return bytes(raw)


def key_name(peer: str) -> str:
    """The name of the key that a peer of this name has."""
    return peer.removeprefix(CLIENT)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a key: letters, digits, '.', '_' and '-' can")


def make_keys(folder: Path, names: Iterable[str]) -> list[str]:
    """Make keys for the names that have none yet; gives the names for which keys were made. Keys that exist stay."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        _check_name(name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    new_names = []
    for name in wanted:
        secret_file, public_file = folder / f"{name}.key", folder / f"{name}.pub"
        if secret_file.exists():
            secret = _read_secret(secret_file)
        elif public_file.exists():
            continue  # the secret half lives elsewhere
        else:
            _, secret = zmq.curve_keypair()
            _write(secret_file, secret, 0o600)
            new_names.append(name)
        if not public_file.exists():
            _write(public_file, zmq.curve_public(secret), 0o644)
    return new_names


def _write(file: Path, key: bytes, mode: int) -> None:
    # Never readable for others, not even for a moment; and never half a key under its name.
    write_file(file, key + b"\n", mode=mode)


def _read_secret(file: Path) -> bytes:
    try:
        mode = file.stat().st_mode
        text = file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{file}: the secret key cannot be read: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{file}: others can read this secret key; take it away from them: chmod 600 {file}")
    return z85.encode(_key_in(file, text))


def _key_in(file: Path, text: bytes) -> bytes:
    try:
        return raw_key(text) if len(text) == 40 else raw_key(b"")
    except ConfigError:
        raise ConfigError(f"{file}: this is not a key; keys are made with `headwater keys`") from None


class Keys:
    """The secret key of one process and the public keys of all that it may talk to."""

    def __init__(self, name: str, secret: bytes, public: dict[str, bytes], folder: Path | None = None) -> None:
        self.name = name
        self._secret = secret  # as its 40 characters
        self._public = {key_name(owner): raw_key(key) for owner, key in public.items()}
        self._folder = folder
        self._stamp = _stamp(folder)
        self._names = {key: owner for owner, key in self._public.items()}

    @classmethod
    def read(cls, folder: Path, name: str) -> Keys:
        """The keys in a folder, for the process of this name."""
        secret = _read_secret(folder / f"{key_name(name)}.key")
        return cls(name, secret, _public_keys(folder), folder)

    @property
    def public_key(self) -> str:
        """Our own, as others write it down."""
        return zmq.curve_public(self._secret).decode()

    def public_key_of(self, peer: str) -> str | None:
        key = self._public.get(key_name(peer))
        return None if key is None else z85.encode(key).decode()

    def allow(self, peer: str, key: bytes) -> None:
        """From now on this is the key of the peer."""
        name = key_name(peer)
        before = self._public.get(name)
        if before is not None and self._names.get(before) == name:
            del self._names[before]
        self._public[name] = key
        self._names[key] = name

    def owner(self, key: bytes) -> str | None:
        """Whose key this is. A folder that has changed is read again: a new client need not wait for a restart."""
        name = self._names.get(key)
        if name is None and self._folder is not None and _stamp(self._folder) != self._stamp:
            self._stamp = _stamp(self._folder)
            for owner, public in _public_keys(self._folder).items():
                self.allow(owner, public)
            name = self._names.get(key)
        return name

    def name_of(self, user_id: object) -> str | None:
        """The name that the gate wrote onto a connection."""
        return user_id if isinstance(user_id, str) and user_id else None

    def may_be(self, owner: str | None, peer: str) -> bool:
        return owner is not None and owner == key_name(peer)

    def protect_listening(self, socket: zmq.Socket[bytes]) -> None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, zmq.curve_public(self._secret))
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)

    def protect_dialing(self, socket: zmq.Socket[bytes], peer: str, public: bytes | None) -> None:
        server = public or self._public.get(key_name(peer))
        if server is None:
            raise ConfigError(
                f"{self.name!r} has no public key of {peer!r} and cannot be sure whom it dials; "
                f"put {key_name(peer)}.pub into its folder of keys"
            )
        socket.setsockopt(zmq.CURVE_SERVERKEY, server)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, zmq.curve_public(self._secret))


def _stamp(folder: Path | None) -> int:
    try:
        return 0 if folder is None else folder.stat().st_mtime_ns
    except OSError:
        return 0


def _public_keys(folder: Path) -> dict[str, bytes]:
    keys = {}
    for file in sorted(folder.glob("*.pub")):
        try:
            text = file.read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"{file}: the public key cannot be read: {error.strerror}") from None
        keys[file.name.removesuffix(".pub")] = _key_in(file, text)
    return keys
