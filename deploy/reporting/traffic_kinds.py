"""The kinds of traffic on links, each explained in a sentence for readers of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXPLAINED: Final[Mapping[str, str]] = {
    "primitive": "Events as sources gave them, on their way to where a rule reads them or to a sink that wants them.",
    "match": "Events that are sent on because they match a part of a rule with others; the rest stays behind.",
    "composite": "Events that rules have made of others, on their way to sinks and to rules that use them.",
    "blocker": "Events that complete nothing themselves but keep an older or a later one from being chosen.",
    "reference": "The identity of an event whose body the neighbour has already; no body is sent twice.",
    "awakening": "Questions to a neighbour: for events that it keeps until they are asked for, or for a sum or count.",
    "answer": "Events that were kept back and have been asked for.",
    "aggregate": "Sums, counts, averages and the like that a neighbour has asked for.",
    "lookup": "Questions to a neighbour for elements of remote tables, and its answers.",
    "watermark": "Overhead: promises that nothing older will follow, which let a node decide.",
    "control": "Overhead: trees, subscriptions, rules and plans.",
}
