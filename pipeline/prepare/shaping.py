"""Turns raw rows into events with Spark's own expressions; a row that cannot be one says why in its own column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.pipeline.prepare.descriptions import (
    FILE,
    UNITS,
    ByHash,
    ByNearest,
    ByRegion,
    ByValue,
    ClockTime,
    Description,
    NumberTime,
    Place,
    RawSource,
    TextTime,
    Time,
)
from headwater.pipeline.prepare.raw import BROKEN, PLACE
from headwater.pipeline.spark.failures import without_code
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import RESERVED_ATTRIBUTES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON: Final = "_reason"
RAW: Final = "_raw"
SOURCE: Final = "_source"

SPARK_KINDS: Final = {"string": "string", "int": "bigint", "float": "double", "bool": "boolean"}
NODE_BYTES_MAX: Final = 200  # a folder is called after it

_CLOCK: Final = r"^\s*([0-9]+):([0-5]?[0-9]):([0-5]?[0-9](?:\.[0-9]+)?)\s*$"


def shaped(rows: DataFrame, source: RawSource, number: int, kinds: Mapping[str, str]) -> DataFrame:
    """Events of one source: ``type``, ``ts``, ``node``, all attributes of the set, and what is wrong with a row.

    Values are made in one step and judged in the next: Spark makes a value that is asked for twice in one step twice.
    """
    from pyspark.sql import functions as F

    raw_names = [name for name in rows.columns if name != BROKEN]
    if source.where is not None:
        rows = rows.where(_checked(rows, source.where, "where", number))
    shaped_values = {
        "type": _type(rows, source.type, number),
        "ts": _time(rows, source.time, number),
        "node": _node(rows, source.place, number),
    }
    absent = {}
    for name, kind in kinds.items():
        kept = source.attributes.get(name)
        if kept is None:
            absent[name] = F.lit(None).cast(SPARK_KINDS[kind]).alias(name)
        else:
            shaped_values[name] = _value(rows, _checked(rows, kept.value, f"the attribute {name}", number), name, kind)
    names = {name: f"_made_{name}" for name in shaped_values}
    values = rows.select(
        "*",
        *(value.column.alias(names[name]) for name, value in shaped_values.items()),
        F.xxhash64(F.input_file_name()).alias(PLACE[0]),
        F.input_file_block_start().alias(PLACE[1]),
    )
    broken = F.col(BROKEN).isNotNull() if BROKEN in rows.columns else F.lit(False)
    wrong = [(broken, F.lit("the row cannot be read (too many or too few cells, or no JSON)"))]
    for name, value in shaped_values.items():
        wrong += value.wrong(F.col(f"`{names[name]}`"))
    reason = reduce(
        lambda rest, case: F.when(case[0], case[1]).otherwise(rest), reversed(wrong), F.lit(None).cast("string")
    )
    judged = values.select(
        F.lit(number).alias(SOURCE),
        *(F.col(f"`{names[name]}`").alias(name) for name in ("type", "ts", "node")),
        *(absent[name] if name in absent else F.col(f"`{names[name]}`").alias(name) for name in kinds),
        reason.alias(REASON),
        *PLACE[:2],
        # A number that is not a function of the row also keeps Spark from asking for reasons a second time in a filter.
        F.monotonically_increasing_id().alias(PLACE[2]),
        F.struct(*(F.col(f"`{name}`") for name in raw_names)).alias(RAW),
    )
    # What is wrong with a row is told once, and only such a row keeps what stood in the file.
    raw = F.when(F.col(REASON).isNotNull(), F.to_json(RAW)).alias(RAW)
    return judged.select(*(F.col(f"`{name}`") for name in judged.columns if name != RAW), raw)


@dataclass(frozen=True)
class _ShapedValue:
    """A value of an event, and of the column that holds it: when it is wrong, and what to say then."""

    column: Column
    wrong: Callable[[Column], list[tuple[Column, Column]]]


def all_events(shaped_sources: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), shaped_sources)


def check_names(description: Description) -> None:
    """Attributes must be such as events may have, and of one kind wherever they appear."""
    kinds: dict[str, str] = {}
    for number, source in enumerate(description.sources, start=1):
        for name, kept in source.attributes.items():
            if name in RESERVED_ATTRIBUTES or name in ("type", "ts", "node", "seq") or name.startswith("_"):
                raise ConfigError(f"source {number}: an attribute cannot be called {name!r}; give it another name")
            if kinds.setdefault(name, kept.kind) != kept.kind:
                raise ConfigError(
                    f"source {number}: {name} is {kept.kind} here and {kinds[name]} in an earlier source; "
                    "give one of them another name, or both the same kind"
                )


# --------------------------------------------------------------------------------------------------------- expressions


def _checked(rows: DataFrame, text: str, subject: str, number: int) -> Column:
    return checked(rows, text, subject, f"source {number + 1}", "the files have the columns")


def checked(rows: DataFrame, text: str, subject: str, where: str, having: str) -> Column:
    """An expression over the columns; a ConfigError that says what is wrong with it."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    try:
        expression = F.expr(text)
        rows.where(expression.isNotNull())  # where nothing is allowed that needs several rows, or gives several
    except ParseException as error:
        raise ConfigError(f"{where}: {subject} is not an expression of Spark SQL: {text!r}; {_first(error)}") from None
    except AnalysisException as error:
        columns = ", ".join(name for name in rows.columns if not name.startswith("_"))
        raise ConfigError(
            f"{where}: {subject} cannot be told from {text!r}: {_first(error)}; {having} {columns}"
        ) from None
    return expression


def _first(error: Exception) -> str:
    """What Spark says, without what is of no use here."""
    text = without_code(str(error).strip().splitlines()[0])
    return text.partition(". Did you mean")[0]  # it would name columns of ours; those of the files are listed


def _kind(rows: DataFrame, column: Column) -> str:
    return rows.select(column.alias("it")).schema["it"].dataType.simpleString()


def _type(rows: DataFrame, text: str, number: int) -> _ShapedValue:
    from pyspark.sql import functions as F

    type_text = _checked(rows, text, "the type", number).cast("string")
    return _ShapedValue(type_text, lambda type_: [(type_.isNull() | (type_ == ""), F.lit("it has no type"))])


def _value(rows: DataFrame, cell: Column, name: str, kind: str) -> _ShapedValue:
    """The value of an attribute. What is empty is absent."""
    from pyspark.sql import functions as F

    was = _kind(rows, cell)
    if kind == "string" or was == SPARK_KINDS[kind] or (kind == "int" and was in ("int", "smallint", "tinyint")):
        return _ShapedValue(cell.cast(SPARK_KINDS[kind]), lambda _: [])
    if kind == "float" and was in ("float", "int", "bigint", "smallint", "tinyint"):
        return _ShapedValue(cell.cast("double"), lambda _: [])
    if kind == "int":
        number = cell.cast("decimal(38,6)")
        converted = F.when(number == F.floor(number), number.cast("bigint"))
        if was == "string":
            converted = F.coalesce(_digits(cell, 18), converted)
    else:
        converted = cell.cast(SPARK_KINDS[kind])
    text = F.concat(F.lit(f"{name} is not of kind {kind}: "), cell.cast("string"))
    return _ShapedValue(converted, lambda value: [(value.isNull() & _is_there(cell, was), text)])


def _is_there(cell: Column, kind: str) -> Column:
    from pyspark.sql import functions as F

    return cell.isNotNull() & (F.trim(cell) != "") if kind == "string" else cell.isNotNull()


def _digits(cell: Column, most: int) -> Column:
    """The whole number that a text of at most so many bytes is, and nothing where it is something else.

    What is longer, or has a fraction, takes a decimal: several times as long.
    """
    from pyspark.sql import functions as F

    return F.when(~cell.contains(".") & (F.octet_length(cell) <= most), cell.cast("bigint"))


# ---------------------------------------------------------------------------------------------------------------- times


def _time(rows: DataFrame, time: Time, number: int) -> _ShapedValue:
    """Microseconds."""
    from pyspark.sql import functions as F

    cell = _checked(rows, time.value, "the time", number)
    was = _kind(rows, cell)
    match time:
        case NumberTime(unit=unit):
            if was in ("bigint", "int"):
                ts = cell.cast("bigint") * F.lit(UNITS[unit]).cast("bigint")
            elif was in ("double", "float"):
                ts = F.round(cell * UNITS[unit]).cast("bigint")
            else:
                ts = F.round(cell.cast("decimal(24,6)") * UNITS[unit]).cast("bigint")
                if was == "string":
                    whole = _digits(cell, 18 - len(str(UNITS[unit]))) * F.lit(UNITS[unit]).cast("bigint")
                    ts = F.coalesce(whole, ts)
            mistake = f"is not a number of {unit}"
        case TextTime(pattern=pattern, zone=zone):
            if was.startswith("timestamp"):
                moment = cell
            elif pattern is None:
                moment = cell.cast("timestamp")
            else:
                moment = F.try_to_timestamp(cell, F.lit(pattern))
            if zone != "UTC":
                moment = F.to_utc_timestamp(moment, zone)
            ts = F.unix_micros(moment.cast("timestamp"))
            mistake = "is not a date and time" + ("" if pattern is None else f" like {pattern}")
        case ClockTime():
            parts = [F.regexp_extract(cell, _CLOCK, group) for group in (1, 2, 3)]
            seconds = parts[0].cast("bigint") * 3600 + parts[1].cast("bigint") * 60
            ts = seconds * F.lit(1_000_000) + F.round(parts[2].cast("decimal(12,6)") * 1_000_000).cast("bigint")
            ts = F.when(cell.rlike(_CLOCK), ts)
            mistake = "is no time like 12:34:56"
    text = F.concat(F.lit(f"its time {mistake}: "), cell.cast("string"))
    return _ShapedValue(
        ts,
        lambda ts_column: [
            (ts_column.isNull() & _is_there(cell, was), text),
            (ts_column.isNull(), F.lit("it has no time")),
        ],
    )


# ---------------------------------------------------------------------------------------------------------------- nodes


def _node(rows: DataFrame, place: Place, number: int) -> _ShapedValue:
    from pyspark.sql import functions as F

    node, wrong = _placed(rows, place, number)
    return _ShapedValue(
        node, lambda node_text: [*wrong(node_text), (node_text.isNull() | (node_text == ""), F.lit("it has no node"))]
    )


def _placed(
    rows: DataFrame, place: Place, number: int
) -> tuple[Column, Callable[[Column], list[tuple[Column, Column]]]]:
    from pyspark.sql import functions as F

    match place:
        case ByValue(value, names):
            said = _checked(rows, value, "the node", number).cast("string")
            if names is None:
                too_long = F.lit("the name of its node is too long")
                return said, lambda node_text: [(F.octet_length(node_text) > NODE_BYTES_MAX, too_long)]
            unnamed = F.concat(F.lit("no node is named for: "), said)
            node = F.create_map(*(F.lit(text) for pair in names.items() for text in pair))[said]
            return node, lambda node_text: [(node_text.isNull() & said.isNotNull(), unnamed)]
        case ByHash(value, nodes):
            hashed = _checked(rows, value, "the node", number)
            chosen = F.pmod(F.xxhash64(hashed.cast("string")), F.lit(len(nodes))).cast("int")
            node = F.array(*map(F.lit, nodes))[chosen]
            return F.when(hashed.isNotNull(), node), lambda _: []
        case ByRegion(latitude, longitude, regions, otherwise):
            north, east, off = _point(rows, latitude, longitude, number)
            node = F.lit(otherwise).cast("string")
            for name, region in reversed([*regions.items()]):
                inside = (north >= region.south) & (north < region.north) & (east >= region.west) & (east < region.east)
                node = F.when(inside, F.lit(name)).otherwise(node)
            there = north.isNotNull() & east.isNotNull()
            outside = F.concat_ws(" ", F.lit("it lies in no region:"), north.cast("string"), east.cast("string"))
            return F.when(there, node), lambda node_text: [off, (node_text.isNull() & there, outside)]
        case ByNearest(latitude, longitude, nodes):
            north, east, off = _point(rows, latitude, longitude, number)
            return F.when(north.isNotNull() & east.isNotNull(), nearest(north, east, nodes)), lambda _: [off]


def _point(rows: DataFrame, latitude: str, longitude: str, number: int) -> tuple[Column, Column, tuple[Column, Column]]:
    from pyspark.sql import functions as F

    north = _checked(rows, latitude, "the latitude", number).cast("double")
    east = _checked(rows, longitude, "the longitude", number).cast("double")
    off = (F.abs(north) > 90) | (F.abs(east) > 180)
    return north, east, (off, F.lit("its latitude or longitude is out of bounds"))


def nearest(north: Column, east: Column, nodes: Mapping[str, tuple[float, float]]) -> Column:
    """The name of the node that lies nearest."""
    from pyspark.sql import functions as F

    distances = [
        F.struct(_distance(north, east, *at).alias("far"), F.lit(name).alias("node")) for name, at in nodes.items()
    ]
    return F.array_min(F.array(*distances))["node"]


def _distance(north: Column, east: Column, to_north: float, to_east: float) -> Column:
    """Squared, in degrees of latitude; near enough to tell which of some nodes of one city or country is nearest."""
    from pyspark.sql import functions as F

    across = (F.pmod(east - to_east + 540.0, F.lit(360.0)) - 180.0) * F.cos(F.radians((north + to_north) / 2))
    up = north - to_north
    return up * up + across * across


__all__ = ["FILE", "RAW", "REASON", "SOURCE", "all_events", "check_names", "checked", "nearest", "shaped"]
