"""Every story ends as it was recorded, under each of its strategies.

``HEADWATER_RECORD=1`` writes the outcomes into the files instead; look at each line that changes, and keep it only if
you can explain it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.reading import RULE, StoryError, read_story
from tests.scenarios.telling import outcome_under

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
RECORD = os.environ.get("HEADWATER_RECORD", "") not in ("", "0")


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_a_story_ends_as_it_was_recorded(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    story, recorded = read_story(text)
    outcomes = {strategy: outcome_under(story, strategy) for strategy in story.strategies}
    first = next(iter(outcomes.values()))
    assert outcomes == dict.fromkeys(outcomes, first), "no strategy changes what is matched"
    if RECORD:
        told = text.partition(f"\n{RULE}\n")[0].rstrip("\n")
        path.write_text(f"{told}\n{RULE}\n{first}", encoding="utf-8")
    else:
        assert first == recorded


def test_the_same_story_ends_in_the_same_way_to_the_byte() -> None:
    story, _ = read_story(STORIES[0].read_text(encoding="utf-8"))
    strategy = story.strategies[0]
    assert outcome_under(story, strategy) == outcome_under(story, strategy)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lnik n1-n2 5ms", "lnik"),
        ("10ms heal n1-n2", "heal n1-n2"),
        ("10ms publish n1 Smoke area=7", "publish n1 Smoke"),
        ("link n1-n2 5ms sitter=3ms", "sitter"),
        ("show colours", "colours"),
    ],
)
def test_a_line_that_says_nothing_is_refused_with_its_number(line: str, words: str) -> None:
    with pytest.raises(StoryError, match="line 2: ") as raised:
        read_story(f"# a story\n{line}\n")
    assert words in str(raised.value)
