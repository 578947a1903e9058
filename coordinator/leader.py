"""Who leads: the node that becomes the root of the one tree, by the delays of the links."""

from __future__ import annotations

from collections.abc import Collection

from headwater.coordinator.shortest_paths import LinkName, distances
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Network


def leader(network: Network, without_links: Collection[LinkName] = (), without_nodes: Collection[str] = ()) -> str:
    """The node with the least total delay to all others, of those that reach most remote tables themselves; of equal
    ones the smaller name.

    Where the network has fallen apart, those that reach most nodes come first.
    """
    reach = distances(network, without_links, without_nodes)
    if not reach:
        raise ConfigError("no node is left that could lead; bring a node back or add one to the network")

    def far_tables(node: str) -> int:
        return sum(bool(table.at) and node not in table.at for table in network.tables)

    return min(reach, key=lambda node: (-len(reach[node]), far_tables(node), sum(reach[node].values()), node))
