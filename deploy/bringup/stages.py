"""The four ways to run a network, by name."""

from __future__ import annotations

from deploy.bringup.stage import Stage


def stage_of(kind: str, image: str | None = None) -> Stage:
    """``image``: the container image to use instead of one built from the sources."""
    if kind == "local":
        from deploy.bringup.local import Local

        return Local()
    if kind == "netns":
        from deploy.bringup.namespaces import Namespaces

        return Namespaces()
    if kind == "mininet":
        from deploy.bringup.in_mininet import InMininet

        return InMininet()
    assert kind == "containers", kind
    from deploy.bringup.containers import Containers

    return Containers(image)
