"""What sinks received: latencies, rates over time, and whether several runs delivered the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.report.buckets import Buckets, bucket
from headwater.pipeline.report.metrics import mine
from headwater.pipeline.report.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

PERCENTILES: Final = (50, 90, 95, 99)
CDF_SHARES: Final = tuple(
    [0.001, 0.005]
    + [percent / 100 for percent in range(1, 100)]
    + [0.991, 0.992, 0.993, 0.994, 0.995, 0.996, 0.997, 0.998, 0.999, 1.0]
)
ACCURACY: Final = 10_000  # a percentile is off by no more than one in so many ranks; up to so many values it is exact
WORD: Final = 62  # sinks that fit into one number, as bits
SPREAD: Final = 8  # batches of births that a match is compared with, about

KEY: Final = ("i", "run", "node", "sink", "number", "id", "rule")
"""What tells deliveries apart; the identity of a composite holds its version and its time."""

TreeLink = tuple[str, str]
"""A link of the tree to the leader: child and parent."""


@dataclass(slots=True)
class Latency:
    """Of one rule, or of all; in microseconds."""

    composites: int
    known: int
    mean_us: float | None
    max_us: int | None
    percentiles_us: Mapping[int, int]
    cdf: Sequence[tuple[float, int]]


@dataclass(slots=True)
class RunDeliveries:
    """What one run gave to its sinks."""

    latency: dict[str, Latency] = field(default_factory=dict)
    """By rule; "" is all of them."""
    over_time: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sinks: dict[int, list[int]] = field(default_factory=dict)
    """By sink: composites, and the least and greatest number among them."""
    strangers: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Matches by node and the identity of the other run that stands in them."""


@dataclass(slots=True)
class RunComparison:
    """Deliveries of one run against those of another over the same events, a composite at each sink for itself."""

    composites: int
    """Different ones, at each sink."""
    again: int
    """Deliveries of what the same sink had been given before, under another number."""
    below: dict[TreeLink, int]
    """By link of the tree to the leader how many composites centr would send over it to sinks."""
    same: int = 0
    missing: int = 0
    extra: int = 0


def watched(lines: DataFrame, number: int) -> tuple[DataFrame, Observation]:
    """The lines, and what will have been counted of each run when Spark has gone through them all."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    is_bad = ~F.col("whole")
    counts = [F.count(F.when((F.col("i") == i) & is_bad, 1)).alias(f"bad_{i}") for i in range(number)]
    counts += [F.count(F.when((F.col("i") == i) & ~is_bad, 1)).alias(f"good_{i}") for i in range(number)]
    return lines.observe(seen, *counts), seen


def deliveries(lines: DataFrame, births: DataFrame | None, runs: Mapping[int, str]) -> DataFrame:
    """Every delivery once: KEY, ``delivered`` and ``latency`` in microseconds, null where unknown.

    What was delivered again after a restart stands in the files twice under the same sink and number; the first counts.
    The latency of a replayed event is counted from when its batch became part of the trace (``births``).
    """
    from pyspark.sql import functions as F

    whole = lines.where("whole").withColumn("run", F.coalesce("run", F.lit("")))
    if births is None:
        timed = whole.withColumn("_born", F.lit(None).cast("long"))
    else:
        timed = _with_births(whole, mine(births, runs))
    latency = F.coalesce(F.min("latency_us"), F.min("delivered") - F.max("_born"))
    return timed.groupBy(*KEY).agg(F.min("delivered").alias("delivered"), latency.alias("latency"))


def _with_births(whole: DataFrame, births: DataFrame) -> DataFrame:
    """With the time at which the batch that holds the latest part was born: a join of numbers with ranges.

    Ranges are cut at multiples of a width, so that the join is one of equal values; the width is such that few batches
    share a piece. A node with most of the matches is spread over its pieces.
    """
    from pyspark.sql import functions as F

    length = F.col("last_seq") - F.col("first_seq") + 1
    lengths = births.agg(F.avg(length)).first()
    assert lengths is not None
    width = piece_width(lengths[0])
    pieces = births.select(
        "i",
        F.col("node").alias("end_node"),
        F.explode(F.sequence(F.floor(F.col("first_seq") / width), F.floor(F.col("last_seq") / width))).alias("_piece"),
        "first_seq",
        "last_seq",
        "first_ts",
        "last_ts",
        F.col("time").alias("_born"),
    )
    placed = whole.withColumn("_piece", F.floor(F.col("end_seq") / width)).alias("m")
    holds = (
        (F.col("m.i") == F.col("b.i"))
        & (F.col("m.end_node") == F.col("b.end_node"))
        & (F.col("m._piece") == F.col("b._piece"))
        & F.col("m.end_seq").between(F.col("b.first_seq"), F.col("b.last_seq"))
        & F.col("m.ts").between(F.col("b.first_ts"), F.col("b.last_ts"))
    )
    return placed.join(pieces.alias("b"), holds, "left").select("m.*", F.col("b._born"))


def piece_width(length: float | None) -> int:
    """How wide the pieces are that ranges are cut into, where batches of births have this length on average."""
    return max(16, int((length or 1) * SPREAD))


def between(frame: DataFrame, runs: Mapping[int, str]) -> dict[int, tuple[int, int]]:
    """By run the times of its first and its last delivery."""
    from pyspark.sql import functions as F

    own = frame.where((F.col("run") == "") | (F.col("run") == _expected(runs)))
    rows = own.groupBy("i").agg(F.min("delivered").alias("first"), F.max("delivered").alias("last")).collect()
    return {row["i"]: (row["first"], row["last"]) for row in rows}


def summed(frame: DataFrame, runs: Mapping[int, str], buckets: Mapping[int, Buckets]) -> dict[int, RunDeliveries]:
    """By run everything about its deliveries that is bounded by rules, sinks and steps of time."""
    from pyspark.sql import functions as F

    result: dict[int, RunDeliveries] = defaultdict(RunDeliveries)
    own = frame.where((F.col("run") == "") | (F.col("run") == _expected(runs)))
    shares = [percentile / 100 for percentile in PERCENTILES] + list(CDF_SHARES)
    rows = (
        own.groupingSets([["i", "rule"], ["i"]], "i", "rule")
        .agg(
            F.count("*").alias("composites"),
            F.count("latency").alias("known"),
            F.avg("latency").alias("mean"),
            F.max("latency").alias("max"),
            F.percentile_approx("latency", shares, ACCURACY).alias("shares"),
        )
        .collect()
    )
    for row in rows:
        values = row["shares"] or []
        percentiles = dict(zip(PERCENTILES, values, strict=False))
        cdf = list(zip(CDF_SHARES, values[len(PERCENTILES) :], strict=False))
        result[row["i"]].latency[row["rule"] or ""] = Latency(
            row["composites"], row["known"], row["mean"], row["max"], percentiles, cdf
        )
    spread = (
        frame.groupBy("i", "node", "run", "sink", bucket("delivered", buckets).alias("bucket"))
        .agg(
            F.count("*").alias("composites"),
            F.min("number").alias("least"),
            F.max("number").alias("most"),
        )
        .collect()
    )
    for row in spread:
        here = result[row["i"]]
        if row["run"] not in ("", runs[row["i"]]):
            here.strangers[row["node"], row["run"]] += row["composites"]
            continue
        here.over_time[row["bucket"]] += row["composites"]
        numbers = here.sinks.setdefault(row["sink"], [0, row["least"], row["most"]])
        numbers[0] += row["composites"]
        numbers[1], numbers[2] = min(numbers[1], row["least"]), max(numbers[2], row["most"])
    return result


def compared(
    frame: DataFrame,
    runs: Mapping[int, str],
    shapes: Sequence[Shape],
    references: Sequence[int | None],
    sinks: Sequence[int],
) -> list[RunComparison]:
    """For every run, what it delivered against its reference; and what centr would have sent back to the sinks.

    Composites are brought together once, by identity; which sinks got one in which run is a few bits. What comes back
    is one row, whatever was delivered. ``sinks``: the greatest number of a sink in each run.
    """
    words = [1 + max(len(shape.sinks) - 1, most) // WORD for shape, most in zip(shapes, sinks, strict=True)]
    below = [sinks_below(shape) for shape in shapes]
    sums: dict[str, Any] = {}
    for i, other in enumerate(references):
        sums |= _delivered_sums(i, words[i]) | _sums_below(i, below[i])
        if other is not None:
            sums |= _shared_sums(i, other, words)
    row = _alike(frame, runs, words).agg(*(value.alias(name) for name, value in sums.items())).first()
    assert row is not None
    return [_comparison(row, i, below[i], other is not None) for i, other in enumerate(references)]


def _alike(frame: DataFrame, runs: Mapping[int, str], words: Sequence[int]) -> DataFrame:
    """How many composites (``ids``) the same sinks of the same runs got, and by run in how many lines (``n_``).

    The sinks of a run are bits in its words.
    """
    from pyspark.sql import functions as F

    own = frame.where((F.col("run") == "") | (F.col("run") == _expected(runs)))
    bits = []
    for i, count in enumerate(words):
        for word in range(count):
            is_here = (F.col("i") == i) & (F.floor(F.col("sink") / WORD) == word)
            one = F.expr(f"shiftleft(1L, cast(sink % {WORD} as int))")
            bits.append(F.coalesce(F.bit_or(F.when(is_here, one)), F.lit(0)).cast("long").alias(_name(i, word)))
        bits.append(F.count(F.when(F.col("i") == i, 1)).alias(f"n_{i}"))
    by_id = own.groupBy("id").agg(*bits)
    masks = [_name(i, word) for i, count in enumerate(words) for word in range(count)]
    return by_id.groupBy(*masks).agg(
        F.count("*").alias("ids"), *(F.sum(f"n_{i}").alias(f"n_{i}") for i in range(len(words)))
    )


def _delivered_sums(i: int, count: int) -> dict[str, Any]:
    """What a run delivered: composites at each sink, and lines."""
    from pyspark.sql import functions as F

    own = [F.col(_name(i, word)) for word in range(count)]
    return {f"all_{i}": F.sum(F.col("ids") * _bits(own)), f"lines_{i}": F.sum(f"n_{i}")}


def _shared_sums(i: int, other: int, words: Sequence[int]) -> dict[str, Any]:
    """What a run and its reference both delivered, and what the reference did."""
    from pyspark.sql import functions as F

    # Sinks are known by their position in the network file, so runs of one file can be laid side by side.
    theirs = [F.col(_name(other, word)) for word in range(words[other])]
    both = [F.col(_name(i, word)).bitwiseAND(their) for word, their in zip(range(words[i]), theirs, strict=False)]
    return {f"same_{i}": F.sum(F.col("ids") * _bits(both)), f"other_{i}": F.sum(F.col("ids") * _bits(theirs))}


def _sums_below(i: int, below: Mapping[TreeLink, frozenset[int]]) -> dict[str, Any]:
    """The composites of a run that any sink of a set got, for every set that some link leads to."""
    from pyspark.sql import functions as F

    sums = {}
    for number, sinks in enumerate(dict.fromkeys(below.values())):
        held = F.lit(False)
        for word, mask in _masks(sinks).items():
            held |= F.col(_name(i, word)).bitwiseAND(F.lit(mask)) != 0
        sums[f"below_{i}_{number}"] = F.sum(F.when(held, F.col("ids")))
    return sums


def _comparison(row: Any, i: int, below: Mapping[TreeLink, frozenset[int]], has_reference: bool) -> RunComparison:
    composites = row[f"all_{i}"] or 0
    counts = {sinks: row[f"below_{i}_{number}"] or 0 for number, sinks in enumerate(dict.fromkeys(below.values()))}
    comparison = RunComparison(
        composites, (row[f"lines_{i}"] or 0) - composites, {link: counts[sinks] for link, sinks in below.items()}
    )
    if has_reference:
        comparison.same = row[f"same_{i}"] or 0
        comparison.missing = (row[f"other_{i}"] or 0) - comparison.same
        comparison.extra = composites - comparison.same
    return comparison


def sinks_below(shape: Shape) -> dict[TreeLink, frozenset[int]]:
    """By link of the tree to the leader the sinks that are reached over it."""
    below: dict[TreeLink, set[int]] = defaultdict(set)
    for number, sink in enumerate(shape.sinks):
        for link in shape.way(sink.node):
            below[link].add(number)
    return {link: frozenset(sinks) for link, sinks in below.items()}


def _masks(sinks: frozenset[int]) -> dict[int, int]:
    masks: dict[int, int] = defaultdict(int)
    for sink in sinks:
        masks[sink // WORD] |= 1 << sink % WORD
    return masks


def _bits(words: Sequence[Any]) -> Any:
    from pyspark.sql import functions as F

    total = F.lit(0)
    for word in words:
        total = total + F.bit_count(word)
    return total


def _name(i: int, word: int) -> str:
    return f"m_{i}_{word}"


def _expected(runs: Mapping[int, str]) -> Any:
    from pyspark.sql import functions as F

    return F.array(*(F.lit(runs.get(i, "")) for i in range(max(runs) + 1)))[F.col("i")]
