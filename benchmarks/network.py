"""How fast is a network of real processes, beside what bare sockets and the bare engine do on the same machine?

    python -m benchmarks.network [--quick] [--only raw,relay,w1,latency,start,idle]

- *raw*: two bare pyzmq processes pass the same msgpack batches of 200 events; the receiver unpacks them and drops them.
- *relay*: the node in the middle of three receives, routes and forwards batches of 200 events of one type. The other
  two are real nodes, too, but driven by a script, so that the relay is the only one with work to do: the events of the
  one were born and encoded beforehand and only leave through its link; the other acknowledges what comes and looks at
  it afterwards. All three durabilities; every event is counted where it arrives.
- *W1*: a node that evaluates the workload W1, fed with the same kind of frames, beside the engine alone. Both get the
  events of the three types that the rule reads, and drop the matches once they are counted. The node also receives,
  decodes, journals, numbers and notes them.
- *latency*: from ``Client.publish`` to a subscribed program over two hops (three nodes) at 1,000 events per second, by
  the clock of the machine that all share; every second event completes a match of a monotone rule.
- *start*: from ``headwater up`` to a network that is ready.
- *idle*: CPU and memory of node processes while nothing happens, started by ``headwater up``.

Throughput is measured twice: by the wall clock, where other work on the machine counts, too, and in CPU seconds of the
process that is measured. Several runs are made and the best is shown. A figure with a wrong count ends the run.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable

from benchmarks import network_latency, network_many, network_relay, network_w1
from benchmarks.network_kit import Line, load

PARTS = ("raw", "relay", "w1", "latency", "start", "idle")
RELAY_GOAL_PER_S, RELAY_GOAL_SHARE, SYNC_GOAL, W1_GOAL = 250_000, 0.06, 0.5, 0.6
P50_GOAL_MS, P99_GOAL_MS, START_GOAL_S, IDLE_GOAL, MEMORY_GOAL_MB = 3.0, 15.0, 15.0, 0.25, 70.0


def relay_lines(quick: bool) -> list[Line]:
    """The raw limit and the relay in all durabilities."""
    events, repeats = (100_000, 2) if quick else (400_000, 4)
    runs_by_durability = {}
    payloads: list[bytes] = []
    for durability in ("none", "async", "sync"):
        runs, payloads = network_relay.relay(durability, events, repeats)
        runs_by_durability[durability] = runs
    raw, lines = _raw(payloads, quick)
    rates = {name: max(run["events"] / run["seconds"] for run in runs) for name, runs in runs_by_durability.items()}
    for name, runs in runs_by_durability.items():
        per_cpu_s = max(run["events"] / max(run["cpu"], 0.01) for run in runs)
        share = rates[name] / raw
        beside = f"{share:.1%} of raw; {per_cpu_s:,.0f} per CPU-s"
        reached = rates[name] >= RELAY_GOAL_PER_S and share >= RELAY_GOAL_SHARE
        total = sum(run["events"] for run in runs)
        goal = f"{RELAY_GOAL_PER_S:,}/s, {RELAY_GOAL_SHARE:.0%}"
        lines.append(Line(f"relay, {name}", f"{rates[name]:,.0f}/s", beside, goal, reached, f"{total:,.0f} events"))
    share = rates["sync"] / rates["none"]
    lines.append(Line("relay, sync / none", f"{share:.2f}", "", f"{SYNC_GOAL}", share >= SYNC_GOAL, ""))
    return lines


def raw_lines(quick: bool) -> list[Line]:
    """The limit alone, with batches as a node encodes them."""
    _, payloads = network_relay.relay("none", 20_000, 1)
    return _raw(payloads, quick)[1]


def _raw(payloads: list[bytes], quick: bool) -> tuple[float, list[Line]]:
    """The limit that counts, with the bytes that nodes send; and one with plain lists of events, for orientation."""
    events, repeats = (1_000_000, 2) if quick else (4_000_000, 4)
    raw = network_relay.raw(payloads, events, repeats)
    plain = network_relay.raw(network_relay.plain_rows(), events, repeats)
    return raw, [
        Line("raw limit, 2 bare processes", f"{raw:,.0f}/s", "", "", None, f"{events:,} events"),
        Line(
            "the same, plain lists of events",
            f"{plain:,.0f}/s",
            f"{plain / raw:.0%} of raw",
            "",
            None,
            f"{events:,} events",
        ),
    ]


def w1_lines(quick: bool) -> list[Line]:
    count = 50_000 if quick else None
    turns = 2 if quick else 4
    events, bare = network_w1.engine_alone(count, turns)
    runs_by_durability = {}
    for durability in ("none", "sync"):
        runs_by_durability[durability] = network_w1.node(durability, count, turns)
        again = network_w1.engine_alone(count, turns)[1]
        bare = min(bare[0], again[0]), min(bare[1], again[1]), bare[2]
    bare_cpu_s, bare_s, matches = bare
    lines = [
        Line("W1, bare engine", f"{events / bare_s:,.0f}/s", f"{events / bare_cpu_s:,.0f} per CPU-s", "", None,
             f"{matches:,} matches"),
    ]  # fmt: skip
    for durability, runs in runs_by_durability.items():
        for run in runs:
            if run["matches"] != matches:
                raise SystemExit(f"W1: the engine finds {matches:,} matches, the node {run['matches']:,.0f}")
        best = min(runs, key=lambda run: run["seconds"])
        share, cpu_share = bare_s / best["seconds"], bare_cpu_s / min(run["cpu"] for run in runs)
        beside = f"{share:.0%} of the engine; {cpu_share:.0%} in CPU-s"
        figure = f"{best['events'] / best['seconds']:,.0f}/s"
        proof = f"{best['matches']:,.0f} matches each"
        lines.append(Line(f"W1, node, {durability}", figure, beside, f"{W1_GOAL:.0%}", share >= W1_GOAL, proof))
    return lines


def latency_lines(quick: bool) -> list[Line]:
    lines = []
    for durability in ("none", "sync"):
        pairs, ms = network_latency.latencies(durability, 3.0 if quick else 10.0)
        p50, p99 = (network_latency.quantile(ms, share) for share in (0.5, 0.99))
        reached = p50 <= P50_GOAL_MS and p99 <= P99_GOAL_MS
        goal = f"{P50_GOAL_MS:.0f} and {P99_GOAL_MS:.0f} ms"
        figure = f"p50 {p50:.1f}, p99 {p99:.1f} ms"
        lines.append(
            Line(f"latency, {durability}", figure, f"max {max(ms):.0f} ms", goal, reached, f"{pairs:,} matches")
        )
    return lines


def start_lines(quick: bool) -> list[Line]:
    nodes = 7 if quick else 20
    seconds = network_many.seconds_to_start(nodes)
    goal = f"{START_GOAL_S:.0f} s for 20"
    return [Line(f"start of {nodes} nodes", f"{seconds:.1f} s", "", goal, seconds <= START_GOAL_S, f"{nodes} nodes")]


def idle_lines(quick: bool) -> list[Line]:
    nodes = 10 if quick else 50
    used, mean_mb, most_mb, own_mb, running = network_many.idle(nodes, 5.0 if quick else 20.0)
    scaled = used * 50 / nodes
    beside = f"{scaled:.2f} for 50" if nodes != 50 else f"{used / nodes:.4f} each"
    goal = f"{IDLE_GOAL} for 50"
    proof = f"{running} nodes"
    return [
        Line(f"{nodes} idle nodes, CPU", f"{used:.3f} cores", beside, goal, scaled < IDLE_GOAL, proof),
        Line(
            f"{nodes} idle nodes, memory",
            f"{mean_mb:.0f} MB each",
            f"at most {most_mb:.0f}, own share {own_mb:.0f}",
            f"{MEMORY_GOAL_MB:.0f} MB",
            most_mb < MEMORY_GOAL_MB,
            proof,
        ),
    ]


RUNS: dict[str, Callable[[bool], list[Line]]] = {
    "raw": raw_lines,
    "relay": relay_lines,
    "w1": w1_lines,
    "latency": latency_lines,
    "start": start_lines,
    "idle": idle_lines,
}


def table(lines: list[Line]) -> str:
    rows = [("what", "measured", "beside", "goal", "reached", "proof")]
    for line in lines:
        reached = "" if line.reached is None else "yes" if line.reached else "NO"
        rows.append((line.title, line.figure, line.beside, line.goal, reached, line.proof))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]])


def main(arguments: list[str] | None = None) -> list[Line]:
    parser = argparse.ArgumentParser(description="networks of real processes, beside bare sockets and the bare engine")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer runs: a minute or two")
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    options = parser.parse_args(arguments)
    chosen = [part for part in options.only.split(",") if part] or [part for part in PARTS if part != "raw"]
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {load()}", flush=True
    )
    lines: list[Line] = []
    for part in PARTS:
        if part in chosen:
            print(f"{part} .. (load {load()})", flush=True)
            lines += RUNS[part](options.quick)
    print(table(lines))
    return lines


if __name__ == "__main__":
    main()
