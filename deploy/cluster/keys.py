"""Keys for a run whose links leave the machine's loopback interface."""

from __future__ import annotations

import os
from dataclasses import replace

from headwater.deploy.cluster.backend import ClusterLayout
from headwater.deploy.cluster.run_plan import COORDINATOR
from headwater.deploy.cluster.runs import Run


def with_keys(run: Run, layout: ClusterLayout, owner: int | None = None) -> ClusterLayout:
    """The layout with a folder of keys for every process in it. Keys that are there stay, those of programs too.

    ``owner``: the user that nodes run as, if it is not the one that starts them; only the owner can read a secret key.
    """
    from headwater.protocol.links import make_keys

    make_keys(run.keys, [COORDINATOR, *layout.nodes])
    if os.geteuid() == 0:
        user = 0 if owner is None else owner
        for file in [run.keys, *run.keys.iterdir()]:
            os.chown(file, user, user)
    return replace(layout, keys=run.keys)
