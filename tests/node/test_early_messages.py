"""What neighbours say about trees that a node does not know yet is kept, over a crash too."""

from __future__ import annotations

import pytest

from headwater.node.core import NodeCore
from headwater.node.effects import MessageReceived
from headwater.protocol.messages.neighbour import GraphLaid, Message, TreeReady
from headwater.protocol.messages.trees import CreateTree


@pytest.mark.parametrize("message", [CreateTree("b", 1, 0), TreeReady("b", 1, 5), GraphLaid("b", 1)], ids=repr)
def test_a_node_is_saved_with_what_it_was_told_early(message: Message) -> None:
    core = NodeCore("a", {"b": 0})
    core.handle(MessageReceived("b", message), 0)
    restored = NodeCore.restored(core.save())
    assert restored.forest.table.take_early() == [("b", message)]
