"""Writes docs/reference/lifecycle.md from the tables of ``lifecycle``.

python -m headwater.node.plans.lifecycle_page > docs/reference/lifecycle.md
"""

from __future__ import annotations

from headwater.node.plans.lifecycle import INPUTS, STATES, TRANSITIONS, State

HEAD = """\
# The life of a tree on a node

<!-- Written by `python -m headwater.node.plans.lifecycle_page`; change node/plans/lifecycle.py instead. -->

Every node keeps one record for each tree or graph that it knows, by its name and its epoch. The record has one of the
states below. The table `TRANSITIONS` in node/plans/lifecycle.py says which input leads from which state to which: this
page is written from it. A message of a neighbour that would make a transition that is not there is reported and
ignored; anything else that would make one is a bug, and fails.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            "```mermaid",
            *diagram(),
            "```",
            "",
            "The drawing leaves out inputs that leave a state as it is, and `forget`, which leads from every state to "
            "`gone`.",
            "",
            "## States",
            "",
            *(f"- **{state}**: {meaning}" for state, meaning in STATES.items()),
            "",
            "## Inputs",
            "",
            *(f"- **{happened}**: {meaning}" for happened, meaning in INPUTS.items()),
            "",
            "## Transitions",
            "",
            "| state | input | next state |",
            "|---|---|---|",
            *(f"| {state} | {happened} | {following} |" for (state, happened), following in TRANSITIONS.items()),
            "",
        ]
    )


def diagram() -> list[str]:
    """The transitions as a Mermaid state diagram; several inputs between the same two states are one arrow."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, happened), following in TRANSITIONS.items():
        if following != state and happened != "forget":
            arrows.setdefault((state, following), []).append(happened)
    return [
        "stateDiagram-v2",
        f"    [*] --> {State.UNKNOWN}",
        *(f"    {state} --> {following}: {', '.join(inputs)}" for (state, following), inputs in arrows.items()),
        f"    {State.GONE} --> [*]",
    ]


if __name__ == "__main__":
    print(page(), end="")
