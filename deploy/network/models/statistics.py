"""The statistics of a network file, and the files that headwater statistics writes (docs/spark/statistics.md)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from headwater.coordinator.inev.model.latency_bounds import USUAL_TERMS, LatencyTerms
from headwater.deploy.network.fields import MAPPING, VALUE, FilePart, Given, Named, NamedEntries, shape
from headwater.deploy.network.mistakes import mistake, wrong
from headwater.deploy.network.models.forms import NUMBER, RATE
from headwater.deploy.network.units import rate_per_s
from headwater.deploy.network.values import OneOf, QuantityEntry, TextEntry, float_of
from headwater.deploy.network.yaml_tree import Scalar

STATISTICS_EXAMPLE: Final = 'write statistics: {rates: {Temp: 2/s}, selectivities: {Fire: {"smoke, temp": 0.05}}}'


def _selectivity(text: Scalar) -> float:
    share = float_of(text)
    if not 0 < share <= 1:
        raise wrong(f"{str(text)!r} is not a selectivity", "write the share that passes, above 0 and at most 1")
    return share


class SharePart(FilePart):
    """A selectivity; beside the share, what it was counted from."""

    WHAT: ClassVar = "the selectivity of <0>"
    EXAMPLE: ClassVar = STATISTICS_EXAMPLE
    SHORT: ClassVar = "share"

    share: Annotated[float, TextEntry("the selectivity of <0>", "", _selectivity, NUMBER)]
    low: Any = None
    high: Any = None
    passed: Any = None
    of: Any = None
    sampled: Any = None

    @classmethod
    def lacking(cls, missing: list[str]) -> PydanticCustomError:
        return mistake("lacking", what=cls.WHAT, why="has no share", cure="write {share: 0.05}, or only 0.05")


Rates = Annotated[
    Annotated[float, QuantityEntry("the rate of <0>", "", rate_per_s, RATE), Tag(VALUE)]
    | Annotated[
        NamedEntries[Annotated[float, QuantityEntry("the rate of <1> at <0>", "", rate_per_s, RATE)]],
        Named("the rates of <0>"),
        Tag(MAPPING),
    ],
    Discriminator(lambda entry: MAPPING if shape(entry) == MAPPING else VALUE),
]
RatesByType = Annotated[NamedEntries[Rates], Named("the rates", STATISTICS_EXAMPLE)]
Selectivities = Annotated[
    NamedEntries[Annotated[NamedEntries[SharePart], Named("the selectivities of <0>", STATISTICS_EXAMPLE)]],
    Named("the selectivities", STATISTICS_EXAMPLE),
]


def _number_of_keys(text: Scalar) -> float:
    number = float_of(text)
    if not 0 < number < float("inf"):
        cure = "write how many different keys a window has: keys: {limits: 200}"
        raise wrong(f"{str(text)!r} is not a number of keys", cure)
    return number


Keys = Annotated[
    NamedEntries[Annotated[float, TextEntry("the keys of <0>", "", _number_of_keys, NUMBER)]],
    Named("the keys of tables", STATISTICS_EXAMPLE),
]


def _factor(text: Scalar) -> float:
    try:
        factor = float(text)
    except ValueError:
        message = f"the factor {str(text)!r} is not a number"
        raise wrong(message, "write what work counts beside a hop: factor: 1") from None
    return LatencyTerms(factor=factor).factor


def _bound(text: Scalar) -> str:
    return LatencyTerms(bound=str(text)).bound


class LatencyPart(FilePart):
    """How late a match may be for the sake of less traffic."""

    WHAT: ClassVar = "latency"
    EXAMPLE: ClassVar = "write latency: {bound: 3x, factor: 1}"

    bound: Annotated[str, TextEntry("the bound of the latency", "", _bound)] = USUAL_TERMS.bound
    factor: Annotated[float, TextEntry("the factor of the latency", "", _factor, NUMBER)] = USUAL_TERMS.factor


class StatisticsPart(FilePart):
    """What planners know beside the rules."""

    WHAT: ClassVar = "statistics"
    EXAMPLE: ClassVar = STATISTICS_EXAMPLE
    SHORT: ClassVar = "file"

    file: Annotated[
        Scalar | None, TextEntry("the file of the statistics", "write the name of what headwater statistics wrote")
    ] = Field(None, description="A file that headwater statistics wrote.")
    rates: Annotated[RatesByType | None, Given()] = None
    selectivities: Annotated[Selectivities | None, Given()] = None
    keys: Annotated[Keys | None, Given()] = None
    latency: Annotated[LatencyPart | None, Given()] = None
    pull: Annotated[Literal["on", "off"], OneOf("pull")] = "on"


def _counted(quantity: str) -> TextEntry:
    """A number that headwater statistics wrote."""

    def parse(text: Scalar) -> float:
        number = float_of(text)
        if not 0 <= number < float("inf"):
            raise wrong(f"{str(text)!r} is not a number of {quantity}", "count again with headwater statistics")
        return number

    return TextEntry(quantity, "", parse, NUMBER)


class SinglePart(SharePart):
    """The share of the events of a role that are in matches."""

    WHAT: ClassVar = "the single share of <0>"
    EXAMPLE: ClassVar = ""

    share: Annotated[float, _counted("a share")]


class ProjectionPart(FilePart):
    """Matches of some roles of a rule, counted."""

    WHAT: ClassVar = "the matches of <0>"

    per_s: Annotated[float | None, _counted("matches per second")] = None
    singles: Annotated[NamedEntries[SinglePart] | None, Named("the single shares of <1>")] = None
    low: Any = None
    high: Any = None
    matches: Any = None
    sampled: Any = None
    selectivity: Any = None


class CountedRulePart(FilePart):
    """The rule that was counted for."""

    WHAT: ClassVar = "the rule <0>"

    text: Any = None
    digest: Any = None


class StatisticsFilePart(FilePart):
    """What headwater statistics writes."""

    WHAT: ClassVar = "a statistics file"
    EXAMPLE: ClassVar = "headwater statistics --out writes such files"

    rates: Annotated[RatesByType | None, Given()] = None
    selectivities: Annotated[Selectivities | None, Given()] = None
    projections: Annotated[
        NamedEntries[Annotated[NamedEntries[ProjectionPart], Named("the projections of <0>")]] | None,
        Named("the projections", STATISTICS_EXAMPLE),
    ] = None
    rules: Annotated[NamedEntries[CountedRulePart] | None, Named("the rules")] = None
    trace: Any = None
    sample: Any = None
    arrivals: Any = None
    notes: Any = None
