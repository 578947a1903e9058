"""The four backends that can run a network, by name."""

from __future__ import annotations

from headwater.deploy.cluster.backend import ClusterBackend


def backend_of(kind: str, image: str | None = None) -> ClusterBackend:
    """``image``: the container image to use instead of one built from the sources."""
    if kind == "local":
        from headwater.deploy.cluster.local import Local

        return Local()
    if kind == "netns":
        from headwater.deploy.cluster.namespaces import Namespaces

        return Namespaces()
    if kind == "mininet":
        from headwater.deploy.cluster.in_mininet import InMininet

        return InMininet()
    assert kind == "containers", kind
    from headwater.deploy.cluster.containers import Containers

    return Containers(image)
