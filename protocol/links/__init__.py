"""Links between processes: reliable, ordered, resumed after every break, encrypted where they leave the machine."""

from __future__ import annotations

from protocol.links.hub import Hub
from protocol.links.keys import Keys, make_keys
from protocol.links.link import Traffic
from protocol.links.settings import LEFT, Handler, LinkError, LinkSettings, PeerState

__all__ = ["LEFT", "Handler", "Hub", "Keys", "LinkError", "LinkSettings", "PeerState", "Traffic", "make_keys"]
