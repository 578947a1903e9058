"""What the nodes of a running network say of their remote tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from headwater.deploy.cluster.pages import ask
from headwater.deploy.cluster.run_plan import Process
from headwater.deploy.cluster.waiting import Patience
from headwater.protocol.text import listed

TRIED_S_MAX: Final = 10.0
"""A node tries each table when it starts; a server that swallows what it is sent takes 5 s by default."""
ASKED_AT_ONCE: Final = 8
LOOK_S: Final = 0.1


def wrong_tables(nodes: Sequence[Process]) -> Iterator[str]:
    """A sentence for each table that nodes cannot use. It is the nodes that try: what they reach, others may not."""
    patience = Patience(TRIED_S_MAX)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        while True:
            pages = list(pool.map(_page, nodes))
            untried = any(table["wrong"] is None for page in pages for table in page.values())
            if not untried or patience.over:
                break
            time.sleep(LOOK_S)
    where: dict[tuple[str, str], list[str]] = {}
    for node, page in zip(nodes, pages, strict=True):
        for table, shown in page.items():
            if shown["wrong"] != "":
                why = shown["wrong"] or f"{shown['provider']} has not answered yet"
                where.setdefault((table, why), []).append(node.name)
    for (table, why), names in where.items():
        yield f"table {table!r} cannot be used at {listed(names, 5)}: {why}; what looks into it waits"


def _page(node: Process) -> dict[str, dict[str, Any]]:
    answer = None if node.http is None else ask(node.http, "/remote")
    return answer[1] if answer is not None and answer[0] == 200 else {}
