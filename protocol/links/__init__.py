"""Links between processes: reliable, ordered, resumed after every break, encrypted where they leave the machine."""

from __future__ import annotations

from headwater.protocol.links.hub import Hub
from headwater.protocol.links.keys import Keys, make_keys
from headwater.protocol.links.link import SocketTraffic
from headwater.protocol.links.settings import LEFT, Handler, LinkError, LinkSettings, PeerState

__all__ = ["LEFT", "Handler", "Hub", "Keys", "LinkError", "LinkSettings", "PeerState", "SocketTraffic", "make_keys"]
