"""Hints for users who write what other languages have (SQL, C, SASE as published): what to write instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from lark import Token, UnexpectedInput, UnexpectedToken

from headwater.protocol.languages.grammar_actions import SyntaxMistake

Language = Literal["tesla", "sase"]

LOOKED_BACK: Final = 8
"""So many tokens before the one that does not fit, a word of another language is looked for."""

_SAME: Final = "SAME[area] in WHERE keeps to events that agree on area"
_OF_WORDS: Final[Mapping[str, Mapping[Language, str]]] = {
    "pattern": {"sase": "leave PATTERN out: a rule begins with SEQ(A a, B b)"},
    "is": dict.fromkeys(("sase", "tesla"), "there is no IS; NOT x = x holds where x has no value"),
    "like": dict.fromkeys(
        ("sase", "tesla"),
        "there is no LIKE; write matches(s, 'regular expression'), startswith(s, 'A') or contains(s, 'A')",
    ),
    "select": {
        "sase": "there is no SELECT; begin with SEQ(A a, B b), and after WITHIN write RETURN Name(attribute = a.v)",
        "tesla": "there is no SELECT; write define Name(attribute: kind) from .. where attribute = A.v",
    },
    "group by": {
        "sase": f"there is no GROUP BY; {_SAME}, and count(b[]) or avg(b[].v) compute over a repetition B+ b[]",
        "tesla": "there is no GROUP BY; write Count(B(area = A.area) within 5 min from A), which counts for each A",
    },
    "partition by": {
        "sase": f"there is no PARTITION BY; {_SAME}",
        "tesla": "there is no PARTITION BY; write a condition such as B(area = A.area)",
    },
    "order by": dict.fromkeys(("sase", "tesla"), "there is no ORDER BY; composite events come in the order of time"),
    "having": {
        "sase": "there is no HAVING; write the condition in WHERE, as in WHERE count(b[]) > 5",
        "tesla": "there is no HAVING; write the condition as a step, as in and Count(B() within 5 min from A) > 5",
    },
    "match_recognize": dict.fromkeys(
        ("sase", "tesla"), "there is no MATCH_RECOGNIZE; PATTERN (A B+ C) is written SEQ(A a, B+ b[], C c) in SASE"
    ),
    "no": {
        "sase": "write !Rain r for an event that must not happen",
        "tesla": "write not Rain() within 5 min from Smoke, or not Rain() between A and B",
    },
}
_ALIKE: Final = {"without": "no", "group": "group by", "partition": "partition by", "order": "order by"}
_STEPS_OF_TESLA: Final = {
    "any": "write each",
    "every": "write each",
    "all": "write each",
    "some": "write last or first",
}
_OF_SIGNS: Final = {
    "&": "write AND",
    "|": "write OR",
    "{": "write conditions without braces, and SKIP TILL ANY MATCH or SKIP TILL NEXT MATCH after WITHIN",
    **dict.fromkeys("\u2018\u2019\u201c\u201d\u201e\u00b4`", "write strings in ' or \""),
}
_INSIDE_A_LIST: Final = ("LPAR", "COMMA", "DOT", "NOT_SIGN", "COLON")
"""After one of these a word is a name, whatever it means elsewhere."""


def hint_for_word(word: str, language: Language) -> str | None:
    """What to write instead of a word (``select``, ``group``) that only other languages have."""
    folded = word.lower()
    return _OF_WORDS.get(_ALIKE.get(folded, folded), {}).get(language)


def known_habit(text: str, language: Language, mistake: UnexpectedInput, fed: list[Token]) -> SyntaxMistake | None:
    """The slip behind this mistake, if it is one that is known from elsewhere."""
    token = mistake.token if isinstance(mistake, UnexpectedToken) else None
    at = mistake.pos_in_stream if token is None else token.start_pos
    if at is None:
        return None
    recent = [*fed[-LOOKED_BACK:], *([] if token is None else [token])]
    return (
        _other_language(text, language, recent)
        or _foreign_word(language, recent)
        or _unclosed_or_unchosen(language, fed)
        or _sign(text, language, at, fed[-1] if fed else None)
    )


def _other_language(text: str, language: Language, recent: Sequence[Token]) -> SyntaxMistake | None:
    for one, other in pairwise(recent):
        first, second = one.lower(), other.lower()
        if language == "sase" and first == "define" and one.type == other.type == "NAME":
            return SyntaxMistake(
                _start(one), "this is TESLA, in a file of SASE rules", "name the file .tesla, or write SEQ(A a, B b)"
            )
        if language == "sase" and one.type == "EVENT" and second in ("seq", "and", "or"):
            return SyntaxMistake(
                _start(one),
                "EVENT declares an event type, as in event Temp(value: float)",
                "leave EVENT out: a rule begins with SEQ(A a, B b)",
            )
    start = next((token for token in recent[-2:] if _SASE_START.match(text, _start(token))), None)
    if language == "tesla" and start is not None:
        return SyntaxMistake(
            _start(start),
            "this is SASE, in a file of TESLA rules",
            "name the file .sase, or write define Name() from ..",
        )
    return None


def _foreign_word(language: Language, recent: Sequence[Token]) -> SyntaxMistake | None:
    """A word that SQL has and we have not, where it cannot be the name of a type, role or attribute."""
    for position, one in enumerate(recent):
        word = one.lower()
        before = recent[position - 1].type if position else ""
        after = recent[position + 1] if position + 1 < len(recent) else None
        if one.type != "NAME" or (after is not None and after.type == "COLON"):
            continue
        if not _is_of_sql(word, before, after, near_the_end=position >= len(recent) - 2):
            if language == "tesla" and before == "AND" and word in _STEPS_OF_TESLA and after is not None:
                return SyntaxMistake(_start(one), f"unexpected {shorten(one)}", _STEPS_OF_TESLA[word])
            continue
        hint = hint_for_word(word, language)
        if hint is not None and word in ("no", "without") and after is not None:
            hint = hint.replace("Rain", str(after))
        if hint is not None:
            return SyntaxMistake(_start(one), f"unexpected {shorten(one)}", hint)
    return None


def _is_of_sql(word: str, before: str, after: Token | None, *, near_the_end: bool) -> bool:
    """Whether a word stands as it does in SQL, between a token of this type and this token."""
    match word:
        case "is" | "like":
            return near_the_end
        case "no" | "without":
            return after is not None and after.type == "NAME"
        case "group" | "partition" | "order":
            return after is not None and after.lower() == "by"
        case "select" | "having" | "match_recognize":
            return before not in _INSIDE_A_LIST
        case _:
            return False


def _unclosed_or_unchosen(language: Language, fed: Sequence[Token]) -> SyntaxMistake | None:
    if language != "tesla" or len(fed) < 2 or fed[-1].lower() != "within":
        return None
    if fed[-2].type == "LPAR":
        return SyntaxMistake(_start(fed[-2]), "this bracket is not closed", "expected ')' before within")
    step = _step_before(fed[:-1])
    if step is None:
        return None
    return SyntaxMistake(
        _start(step),
        f"which {step}? A step says whether it takes each, the last or the first",
        f"write each, last, first, n-last, n-first or not before {step}",
    )


def _step_before(fed: Sequence[Token]) -> Token | None:
    """The type in ``and Temp(..)`` or ``and Temp``, where a step stands at the end without its each, last or first."""
    position = len(fed) - 1
    if fed[position].type == "RPAR":
        depth = 0
        while position >= 0:
            depth += {"RPAR": 1, "LPAR": -1}.get(fed[position].type, 0)
            position -= 1
            if depth == 0:
                break
    if position < 1 or fed[position].type != "NAME" or fed[position - 1].type != "AND":
        return None
    return fed[position]


def _sign(text: str, language: Language, at: int, last: Token | None) -> SyntaxMistake | None:
    sign = text[at : at + 1]
    named = last is not None and last.type == "NAME"
    if language == "sase" and named and text[at : at + 2] == "->":
        return SyntaxMistake(at, "unexpected '->'", "write what follows each other as SEQ(A a, B b)")
    if language == "sase" and sign == "*" and named and _LEAF_END.search(text[:at]):
        return SyntaxMistake(at, "unexpected '*'", "a repetition has one or more events; write '+'")
    if sign and sign in _OF_SIGNS:
        return SyntaxMistake(at, f"unexpected character {sign!r}", _OF_SIGNS[sign])
    return None


_SASE_START = re.compile(r"(?:pattern\s+)?n?seq\s*\(", re.IGNORECASE)
_LEAF_END = re.compile(r"[(,]\s*\w+\s*$")


def _start(token: Token) -> int:
    return token.start_pos or 0


def shorten(token: Token) -> str:
    """The token as a message shows it."""
    words = " ".join(str(token).split())
    return repr(words if len(words) <= 40 else words[:39] + "…")
