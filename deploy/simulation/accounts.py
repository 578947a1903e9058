"""The accounts of a simulated run: what crossed which link, from the accounts of every node."""

from __future__ import annotations

from headwater.deploy.simulation.outcome import Outcome
from headwater.node.observe import accounts
from headwater.node.observe.accounts import Traffic
from headwater.protocol.messages.neighbour import Message
from headwater.protocol.wire.messages import Wire


class _Sender(accounts.LinkAccounts):
    """The accounts of one node; they stand in the outcome as well."""

    def __init__(self, node: str, outcome: Outcome, wire: Wire) -> None:
        super().__init__(wire)
        self._node = node
        self._traffic = outcome.traffic

    def opened(self, neighbour: str, kind: str, traffic: Traffic) -> None:
        self._traffic[self._node, neighbour, kind] = traffic


class SimulatedAccounts:
    """Notes every frame of every node."""

    def __init__(self, outcome: Outcome, wire: Wire) -> None:
        self._outcome = outcome
        self._wire = wire
        self._senders: dict[str, _Sender] = {}

    def of(self, node: str) -> accounts.LinkAccounts:
        """The accounts of one node, also of one that has sent nothing yet."""
        account = self._senders.get(node)
        if account is None:
            account = self._senders[node] = _Sender(node, self._outcome, self._wire)
        return account

    def note(self, sender: str, receiver: str, message: Message, size: int, copies: int) -> None:
        account = self._senders.get(sender)
        if account is None:
            account = self._senders[sender] = _Sender(sender, self._outcome, self._wire)
        account.note(receiver, message, size, copies)
