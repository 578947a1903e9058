"""The number of every format that Headwater writes to disk or sends over links.

Every reader checks the number before anything else. A version that writes one of them in another way gives it the next
number here; how saved state of an earlier number is upgraded is in ``protocol.state.format``. The snapshots of an
engine are part of a node's state; their number is in ``node.engine.snapshot``.
"""

from __future__ import annotations

from typing import Final

# ------------------------------------------------------------------------------------------------------------- on links

LINK_FRAMES: Final = 1
"""Frames of links (``protocol.links.frames``)."""
RULE_ENCODING: Final = 1
"""The canonical encoding of rules (``protocol.wire.rule_encoding``), on links and on disk."""

# ------------------------------------------------------------------------------------------- in the folder of a process

JOURNAL_FILES: Final = 1
"""Segments and snapshot files of a journal (``protocol.journal.files``)."""
# 1 had no remote tables; 2 none that are not steady or asked over neighbours, no foresight, and no functions of a file
NODE_STATE: Final = 3
"""What the snapshot of a node holds (``node.snapshot``)."""
COORDINATOR_STATE: Final = 3  # as those of a node
"""What the snapshot of a coordinator holds (``coordinator.daemon.snapshot``, as the next two)."""
COORDINATOR_INPUTS: Final = 1
"""Inputs in the journal of a coordinator."""
COORDINATOR_SETUP: Final = 3  # as those of a node
"""What a coordinator was told of its network when it first started."""

# ---------------------------------------------------------------------------------------------------- for bulk analysis

RECORDS: Final = 1
"""Metrics and match records of a node (``node.observe.metrics.record_lines``), which reports read."""
REPORT_NETWORK: Final = 1
"""What a report must know of a network beside its records (``pipeline.report.shape``)."""
PREPARED_TRACE: Final = 2  # 1 had another checksum
"""Folders that ``headwater traces`` writes (``pipeline.prepare.prepared_trace``)."""
