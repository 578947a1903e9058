"""Decides which addresses may be used without keys."""

from __future__ import annotations

import ipaddress

from headwater.protocol.errors import ConfigError


def is_local(address: str) -> bool:
    """Whether no process outside this machine can be at the other end."""
    scheme, _, rest = address.partition("://")
    if scheme != "tcp":
        return scheme in ("ipc", "inproc")
    host = rest.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_shape(address: str) -> None:
    scheme, between, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme in ("ipc", "inproc") and rest:
        return
    if scheme != "tcp" or not between or not colon or not host or not (port.isdecimal() and int(port) < 65_536):
        raise ConfigError(f"{address!r} is not an address; write tcp://HOST:PORT")


def check_listening(address: str, *, has_keys: bool) -> None:
    _check_shape(address)
    if not has_keys and not is_local(address):
        raise ConfigError(
            f"{address} can be reached from other machines, and there are no keys to authenticate them; "
            f"make keys with `headwater keys` and name their folder with --keys, or listen on 127.0.0.1"
        )


def check_dialed(name: str, address: str, *, has_keys: bool) -> None:
    _check_shape(address)
    if not has_keys and not is_local(address):
        raise ConfigError(
            f"{name!r} is to be dialed at {address}, on another machine, and there are no keys to protect the link; "
            f"make keys with `headwater keys` and name their folder with --keys"
        )
