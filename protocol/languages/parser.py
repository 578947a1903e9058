"""Parses rule text into syntax with lark, and explains syntax errors in plain words."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from lark import Lark, Token, UnexpectedInput, UnexpectedToken

from headwater.protocol.languages.diagnostics import Text
from headwater.protocol.languages.foreign_syntax import Language, hint_for_word, known_habit, shorten
from headwater.protocol.languages.grammar_actions import SaseReader, SyntaxMistake, TeslaReader
from headwater.protocol.languages.syntax import LeafPart, RuleSyntax, SaseRule, TypeDeclaration
from headwater.protocol.text import listed

NESTING_MAX: Final = 100
"""Levels of brackets; deeper text is refused, so that no later stage meets a tree it cannot walk."""

WORDS: Final = {
    "NAME": "a name", "NUMBER": "a number", "DURATION": "a duration such as 5 min", "STRING": "a string",
    "PARAMETER": "a $parameter", "COMPARE": "a comparison", "EQUALS": "'='", "OPTIONAL": "'?'", "PLUS": "'+'",
    "MINUS": "'-'", "STAR": "'*'", "SLASH": "'/'", "PERCENT": "'%'", "DOT": "'.'", "COMMA": "','", "COLON": "':'",
    "SEMICOLON": "';'", "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "BRACKETS": "'[]'",
    "NOT_SIGN": "'!'", "OPERATOR": "SEQ(", "N_LAST": "n-last", "N_FIRST": "n-first", "$END": "the end",
}  # fmt: skip
"""How a terminal of the grammar is called in a message; the others are keywords and are called by their name."""

_VALUE_STARTS = {"NUMBER", "STRING", "PARAMETER", "NAME", "LPAR", "MINUS"}
_VALUE_WORDS = _VALUE_STARTS | {"DURATION", "TRUE", "FALSE", "NULL", "REMOTE", "AGGREGATE", "SAME", "LSQB", "NOT"}
_STEP_STARTS = {"EACH", "LAST", "FIRST", "N_LAST", "N_FIRST"}
_OPERATORS = {"PLUS", "MINUS", "STAR", "SLASH", "PERCENT"}
_NEW_RULE = {"EVENT", "DEFINE", "RULE", "OPERATOR", "NOT_SIGN"}


@cache
def _grammar(language: Language) -> Lark:
    folder = files("headwater.protocol.languages")
    text = (folder / f"{language}.lark").read_text("utf-8") + (folder / "expressions.lark").read_text("utf-8")
    reader = TeslaReader() if language == "tesla" else SaseReader()
    return Lark(text, parser="lalr", lexer="contextual", transformer=reader)


def parse_text(text: Text, language: Language) -> list[TypeDeclaration | RuleSyntax]:
    """The declarations and rules of a text, or a SyntaxMistake."""
    _check_nesting(text.text)
    parser = _grammar(language).parse_interactive(text.text)
    fed: list[Token] = []
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):  # type: ignore[no-untyped-call]
            parser.feed_token(token)
            fed.append(token)
        items: list[TypeDeclaration | RuleSyntax] = parser.feed_eof(fed[-1] if fed else None)  # type: ignore[no-untyped-call]
    except UnexpectedInput as mistake:
        raise _explain(text.text, language, mistake, fed) from None
    for item in items:
        if isinstance(item, SaseRule) and item.name is None and isinstance(item.root, LeafPart):
            _check_lone_name(text.text, item.root, bool(item.clauses))
    return items


def _check_lone_name(text: str, leaf: LeafPart, has_clauses: bool) -> None:
    """A name alone would do as a pattern, but where it follows a number or nothing follows it, it is a slip."""
    at, name = leaf.at, leaf.type.text
    before = text[:at].rstrip(" \t")
    if before[-1:].isalnum() and _WINDOW_NUMBER.search(before[-80:]):
        raise _no_unit(at, name)
    habit = hint_for_word(name, "sase")
    is_null = name.lower() == "is" and leaf.alias is not None and leaf.alias.text.lower() == "null"
    if habit is not None and (is_null or not has_clauses):
        raise SyntaxMistake(at, f"unexpected {name!r}", habit)
    if not has_clauses:
        raise SyntaxMistake(at, f"unexpected {name!r}", "expected a rule such as SEQ(A a, B b) WITHIN 5 min")


# A string that does not end is skipped too, or else each of its quotes would be tried as the start of another.
_SKIPPED = re.compile(r"""(?:#|//|--)[^\n]*|'(?:[^'\\\n]|\\.)*'?|"(?:[^"\\\n]|\\.)*"?|([(\[])|([)\]])""")


def _check_nesting(text: str) -> None:
    depth = 0
    for bracket in _SKIPPED.finditer(text):
        if bracket[1]:
            depth += 1
            if depth > NESTING_MAX:
                raise too_deep(bracket.start())
        elif bracket[2]:
            depth = max(0, depth - 1)


def too_deep(at: int) -> SyntaxMistake:
    return SyntaxMistake(
        at, f"this is nested more than {NESTING_MAX} levels deep", "write it flatter, or as several rules"
    )


def _explain(text: str, language: Language, mistake: UnexpectedInput, fed: list[Token]) -> SyntaxMistake:
    # The parser has digested what it could before it gave up, so what it expected there is found by coming again.
    parser = _grammar(language).parse_interactive(text)
    for token in fed:
        parser.feed_token(token)
    expected = set(parser.accepts())  # type: ignore[no-untyped-call]
    return known_habit(text, language, mistake, fed) or _explained(text, mistake, expected, fed[-2:])


def _explained(text: str, mistake: UnexpectedInput, expected: set[str], recent: list[Token]) -> SyntaxMistake:
    token = mistake.token if isinstance(mistake, UnexpectedToken) else None
    if token is not None and token.type == "$END":
        if not recent:
            return SyntaxMistake(0, "there is no rule in this text", "")
        return SyntaxMistake(len(text), "the text ends too early", f"expected {expectation(expected)}")
    at = mistake.pos_in_stream if token is None else token.start_pos
    at = len(text) if at is None else at
    unit = _unknown_unit(text, at, recent)
    if unit is not None:
        return unit
    if token is None:
        character = text[at : at + 1]
        if character in "'\"" and character:
            return SyntaxMistake(at, "this string does not end", f"expected another {character} on the same line")
        if character == "$":
            return SyntaxMistake(at, "a parameter needs a name", "write $name")
        return SyntaxMistake(at, f"unexpected character {character!r}", f"expected {expectation(expected)}")
    return SyntaxMistake(at, f"unexpected {shorten(token)}", f"expected {expectation(expected)}")


_WINDOW_NUMBER = re.compile(r"(?:within|;)\s*-?\s*\d+(?:\.\d+)?$", re.IGNORECASE)
_UNIT_LIKE = re.compile(r"\d+(?:\.\d+)?[ \t]*([^\W\d]\w*)")


def _unknown_unit(text: str, at: int, recent: list[Token]) -> SyntaxMistake | None:
    """A number followed by a word that is no unit, where the parser stopped at that word or right after it."""
    for token in reversed(recent):
        if token.type == "NUMBER" and token.start_pos is not None and token.end_pos is not None:
            quantity = _UNIT_LIKE.match(text, token.start_pos)
            window = _WINDOW_NUMBER.search(text[max(0, token.end_pos - 80) : token.end_pos])
            if quantity and window and quantity.start(1) <= at:
                return _no_unit(quantity.start(1), quantity[1])
    return None


def _no_unit(at: int, word: str) -> SyntaxMistake:
    return SyntaxMistake(at, f"unknown unit {word!r}", "write us, ms, s, min, h or d; k and M only for counts")


def expectation(expected: set[str]) -> str:
    """``a name or ')'``: what may stand here, most telling first."""
    words: list[str] = []
    remaining = set(expected)
    if remaining >= _STEP_STARTS:
        words += ["each", "last", "first", "n-last", "n-first", "not"]
        remaining -= _STEP_STARTS
    if remaining >= _VALUE_STARTS:
        words.append("a value")
        remaining -= _VALUE_WORDS
    if remaining >= _OPERATORS:
        remaining -= _OPERATORS
        words.append("an operator")
        if "COMPARE" in remaining:
            remaining -= {"COMPARE", "IN", "NOT", "BETWEEN"}
            words[-1] = "a comparison or operator"
        remaining -= {"DOT", "LSQB", "LPAR"}
    if len(remaining) > 3:
        remaining -= {"BRACKETS", "LIMIT"}
    if "$END" in remaining and len(remaining) > 1:
        if remaining & _NEW_RULE:
            words.append("a new rule")
            remaining -= _NEW_RULE | {"NAME", "SEMICOLON", "LPAR", "NOT", "AND", "OR"}
        remaining.discard("$END")
    words += sorted((WORDS.get(name, name.lower()) for name in remaining), key=_telling)
    if len(words) == 1:
        return words[0]
    if len(words) > 9:
        return listed(words, 8)
    return ", ".join(words[:-1]) + " or " + words[-1]


def _telling(word: str) -> tuple[bool, bool, str]:
    return word.startswith("'"), not word.startswith("a "), word
