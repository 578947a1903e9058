"""Prints operator trees as SASE text."""

from __future__ import annotations

from typing import Final

from headwater.protocol import expressions as e
from headwater.protocol.languages.printing import NOT, ExpressionPrinter, PrintError, check_split, name, window, word
from headwater.protocol.pattern import (
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Repetition,
    Rule,
    Sequence,
    Window,
    repeated_roles,
)

OPERATORS: Final = frozenset(["and", "or", "not"])
"""Words that begin something else where an event type or a rule's name could begin."""

RESERVED: Final = OPERATORS | frozenset(
    ["within", "where", "event", "true", "false", "null", "skip", "return", "limit", "same", "remote"]
)
"""Words that cannot be roles."""


def role_name(text: str) -> str:
    return name(text, "a role", RESERVED)


def type_name(text: str) -> str:
    return name(text, "an event type", OPERATORS)


def print_sase(rule: Rule) -> str:
    root = rule.pattern.root
    if isinstance(root, Chain):
        raise PrintError("SASE cannot say a chain of TESLA selections")
    repeated = repeated_roles(root)

    def attribute(node: e.Attribute) -> str:
        if not node.role:
            return name(node.name, "an attribute", RESERVED)
        index = {"": "[i]" if node.role in repeated else ""}.get(node.index, f"[{node.index}]")
        return f"{role_name(node.role)}{index}.{word(node.name)}"

    printer = ExpressionPrinter(attribute, role_name, parameters=False)
    outermost = root.window if isinstance(root, Sequence | Conjunction) else None
    lines = [f"{name(rule.name, 'a rule', OPERATORS | {'event'})}: {_root(root, outermost)}"]
    check_split(rule.pattern.where)
    conditions = [
        f"SAME[{printer.text(condition.key)}]" if isinstance(condition, e.Same) else printer.text(condition, NOT)
        for condition in rule.pattern.where
    ]
    if conditions:
        lines.append("WHERE " + "\n  AND ".join(conditions))
    if outermost is not None and outermost.bounds == "span":
        length = window(outermost.length) if outermost.unit == "us" else f"{outermost.length} events"
        lines.append(f"WITHIN {length}")
    if rule.pattern.skip == "next":
        lines.append("SKIP TILL NEXT MATCH")
    if rule.attributes or rule.emits != rule.name:
        outputs = [
            f"{word(output.name)}{'' if output.kind == 'any' else f': {output.kind}'} = {printer.text(output.value)}"
            for output in rule.attributes
        ]
        lines.append(f"RETURN {word(rule.emits)}({', '.join(outputs)})")
    return "\n".join(lines) + "\n"


def _root(root: Part, outermost: Window | None) -> str:
    match root:
        case Repetition():
            raise PrintError("a repetition needs a SEQ with a window around it")
        case Sequence() | Conjunction():
            inside = _inside(root)
            if outermost is not None and outermost.bounds == "ends":
                if outermost.unit == "events":
                    raise PrintError("a window that counts events spans the whole match: its bounds must be 'span'")
                inside += f"; {window(outermost.length)}"
            return f"{_word(root)}({inside})"
        case _:
            return _part(root)


def _part(part: Part) -> str:
    match part:
        case Leaf(role, kind):
            return type_name(kind) if role == kind else f"{type_name(kind)} {role_name(role)}"
        case Negation(inner):
            return f"!{_part(inner)}"
        case Repetition((leaf,), limit):
            text = f"{type_name(leaf.type)}+ {role_name(leaf.role)}[]"
            return text if limit is None else f"{text} LIMIT {limit}"
        case Repetition(parts):
            return f"({', '.join(_part(leaf) for leaf in parts)})+"
        case Disjunction(parts):
            return f"OR({', '.join(_part(inner) for inner in parts)})"
        case Sequence() | Conjunction():
            own = f" WITHIN {window(part.window.length)}" if part.window else ""
            return f"{_word(part)}({_inside(part)}){own}"


def _inside(part: Sequence | Conjunction) -> str:
    for inner in part.parts:
        if isinstance(part, Sequence) and isinstance(inner, Sequence) and inner.window is None:
            raise PrintError("a SEQ inside a SEQ without a window of its own is the same as its parts in its place")
    return ", ".join(_part(inner) for inner in part.parts)


def _word(part: Sequence | Conjunction) -> str:
    return "SEQ" if isinstance(part, Sequence) else "AND"
