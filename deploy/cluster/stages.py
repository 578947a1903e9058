"""The four ways to run a network, by name."""

from __future__ import annotations

from deploy.cluster.stage import Stage


def stage_of(kind: str, image: str | None = None) -> Stage:
    """``image``: the container image to use instead of one built from the sources."""
    if kind == "local":
        from deploy.cluster.local import Local

        return Local()
    if kind == "netns":
        from deploy.cluster.namespaces import Namespaces

        return Namespaces()
    if kind == "mininet":
        from deploy.cluster.in_mininet import InMininet

        return InMininet()
    assert kind == "containers", kind
    from deploy.cluster.containers import Containers

    return Containers(image)
