"""A node's state as bytes, and back.

Everything in a core is plain data but for three things, which are saved as what they are made from: engines (their
rules and a snapshot), compiled conditions (their expressions), and composites (their bindings and values).
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from headwater.node.engine import Engine
from headwater.node.plans.catalog import compiled
from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.composites import Composite, carrying_spec
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import EventType
from headwater.protocol.pattern import Rule

VERSION = 5  # of what cores and machines are made of


class StateError(HeadwaterError):
    """Saved state that is damaged or of another version: whoever keeps it must act."""


class _Saver(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Composite):
            spec = value.spec
            made_of = (spec.rule, spec.version, spec.type, spec.roles, spec.repeated, spec.plain)
            return _composite, (made_of, tuple(value[1 : 1 + len(spec.roles)]), spec.values(*value[1:]))
        if type(value) is Engine:
            program = value.program
            made_from = (program.rules, tuple(program.types.values()), tuple(program.composites.values()))
            return _engine, (*made_from, value.snapshot())
        recipe = getattr(value, "recipe", None)
        if recipe is not None:
            return recipe
        return NotImplemented


def _composite(made_of: Any, bindings: tuple[Any, ...], values: tuple[Any, ...]) -> Composite:
    return Composite((carrying_spec(*made_of), *bindings, values))


def _engine(
    rules: tuple[Rule, ...], types: tuple[EventType, ...], composites: tuple[EventType, ...], snapshot: bytes
) -> Engine:
    (rule,) = rules
    engine = Engine(compiled(rule, types, composites), on_failure=NOTED.note)
    engine.restore(snapshot)
    return engine


def save(state: Any) -> bytes:
    """The state with everything it holds."""
    out = io.BytesIO()
    _Saver(out, protocol=5).dump((VERSION, state))
    return out.getvalue()


def restore(data: bytes) -> Any:
    """What was saved. Only for what this node has written itself: whoever can forge it can run code here."""
    try:
        version, state = pickle.loads(data)
    except Exception as error:
        raise StateError(f"the saved state is damaged ({type(error).__name__}); start the node without it") from error
    if version != VERSION:
        raise StateError(f"the state was saved by version {version}, this is version {VERSION}")
    return state
