"""The shape of case files (format ``inev-case-1``), and a sentence for what does not have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_origin

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from headwater.coordinator.inev.model.case_files import FORMAT
from headwater.coordinator.inev.model.problem import ProblemError


class EventTypeRow(BaseModel):
    """How often a type occurs at each of its sources."""

    local_rate: Any
    sources: list[Any]


class CaseContent(BaseModel):
    """A whole file. What numbers and names must be is checked where problems are built."""

    nodes: list[Any]
    edges: list[tuple[Any, Any]]
    event_types: dict[str, EventTypeRow]
    pairwise_selectivities: dict[str, Any]
    queries: list[str]
    single_selectivities: Annotated[dict[str, Any], BeforeValidator(lambda written: written or {})] = Field(
        default_factory=dict
    )
    case: Any = None
    result: Any = None


def case_content(content: object) -> CaseContent:
    """The decoded file as what it must be; a ProblemError with the first mistake otherwise."""
    fields: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
    if (stated := fields.get("format")) != FORMAT:
        raise ProblemError(f"this is not a case file: its field 'format' is {stated!r} and must be {FORMAT!r}")
    try:
        return CaseContent.model_validate(fields)
    except ValidationError as error:
        raise ProblemError(_sentence(error.errors()[0], fields)) from None


def _sentence(error: ErrorDetails, content: Mapping[str, Any]) -> str:
    match error["loc"]:
        case ("edges", int(at), *_):
            return f"edge {content['edges'][at]!r} does not join two nodes; write it as [a, b]"
        case ("event_types", type, *_):
            return f"event type {type} needs a 'local_rate' and a list of 'sources'"
        case ("queries", int(at), *_):
            return f"query {at + 1} is {content['queries'][at]!r}; write it as a text like SEQ(A, AND(B, C))"
        case ("single_selectivities", *_):
            return "field 'single_selectivities' is not an object; write it as {\"A|AB\": 0.5}, or leave it out"
        case (name, *_):
            is_list = get_origin(CaseContent.model_fields[str(name)].annotation) is list
            wanted = "a list" if is_list else "an object"
            return f"field {name!r} is missing or is not {wanted}; a case of format {FORMAT} has it"
        case _:
            raise AssertionError(error)
