"""How fast is the engine, beside the least that plain Python needs to look at the same events?

    python -m benchmarks.engine [W1 W2 ..] [--quick]

Every workload runs in a process of its own: events already built, batches of 200 with a watermark each, matches handed
to a sink that reads and drops them. Only some of the events are of types that the rules name; the first rate counts
those alone, the second all that were fed. *limit* is the time plain Python needs only to loop over the same events and
look the type up in a dict; *share* is limit / engine, in the same run. Further columns: with building the events
counted in, and with all composites kept. The second table is the command over the same events, from a CSV file to its
end: ``headwater run --count``, and with every composite event written to a file. Then come the questions of memory and
growth, each with its own ratio.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.workloads import WORKLOADS
from headwater.node.engine import Engine
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source, parse_rules

BATCH = 200
GC_THRESHOLD = 100_000  # matches are tuples without cycles: collecting them every 700 allocations finds nothing


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def batches_of(events: list[Event]) -> list[list[Event]]:
    return [events[i : i + BATCH] for i in range(0, len(events), BATCH)]


def drain(engine: Engine, batches: list[list[Event]]) -> int:
    """Run everything through; the sink reads each match and drops it."""
    count = 0
    for batch in batches:
        for _ in engine.feed(batch):
            count += 1
        for _ in engine.advance(batch[-1][0] - 1):
            count += 1
    for _ in engine.close():
        count += 1
    return count


def keep(engine: Engine, batches: list[list[Event]]) -> list[Any]:
    kept: list[Any] = []
    for batch in batches:
        kept += engine.feed(batch)
        kept += engine.advance(batch[-1][0] - 1)
    return kept + engine.close()


def look_at(events: list[Event], types: dict[EventType, int]) -> int:
    count = 0
    for event in events:
        if types.get(event[3]) is not None:
            count += 1
    return count


def measure(name: str, quick: bool) -> dict[str, Any]:
    gc.set_threshold(GC_THRESHOLD, 50, 50)
    workload = next(w for w in WORKLOADS if w.name == name)
    rules = workload.rules()
    build_s, events = cpu_seconds(lambda: workload.trace())
    batches = batches_of(events)
    gc.collect()
    gc.freeze()
    before_mb = peak_mb()
    types = dict.fromkeys(workload.types().values(), 1)
    repeats = 1 if quick else 3
    limit_s = min(cpu_seconds(lambda: look_at(events, types))[0] for _ in range(repeats))
    best_s, matches = min(cpu_seconds(lambda: drain(Engine(rules), batches)) for _ in range(repeats))
    memory_mb = peak_mb() - before_mb
    kept_s, kept = cpu_seconds(lambda: keep(Engine(rules), batches))
    if matches != workload.matches or len(kept) != workload.matches:
        sys.exit(f"{name}: {matches} matches listed and {len(kept)} kept, but {workload.matches} are right")
    count = len(events)
    read = workload.named()
    named = sum(event.type in read for event in events)
    return {
        "workload": f"{name} {workload.about}",
        "events": count,
        "named": named,
        "matches": matches,
        "named/s": named / best_s,
        "events/s": count / best_s,
        "reach": workload.reach_per_s,
        "share of limit": limit_s / best_s,
        "limit/s": count / limit_s,
        "with creation/s": count / (best_s + build_s),
        "kept/s": count / kept_s,
        "peak MB": before_mb + memory_mb,
        "state MB": memory_mb,
        "best other": workload.best_other,
    }


# ------------------------------------------------------------------------------------------------------- the command


def run_command(folder: Path, *options: str) -> tuple[float, str]:
    """CPU seconds of ``headwater run`` as a process of its own, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-m", "headwater.deploy.cli.command", "run", *map(str, folder.glob("rule.*")), "--quiet"]
    done = subprocess.run(
        [*words, "--events", str(folder / "events.csv"), *options], stdout=subprocess.PIPE, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def measure_command(name: str, quick: bool) -> dict[str, Any]:
    workload = next(w for w in WORKLOADS if w.name == name)
    repeats = 1 if quick else 3
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / f"rule.{workload.language}").write_text(workload.text)
        rows = list(workload.rows())
        lines = [f"{kind},{ms * 1000},n,{i},{key},{v}\n" for i, (kind, ms, key, v) in enumerate(rows)]
        (folder / "events.csv").write_text("type,ts,node,seq,id,v\n" + "".join(lines))
        count_s, counts = min(run_command(folder, "--count", "--json") for _ in range(repeats))
        matches_file = folder / "found.jsonl"
        write_s, _ = min(run_command(folder, "--out", str(matches_file)) for _ in range(repeats))
        with open(matches_file) as written:
            listed = sum(1 for _ in written)
    counted = sum(json.loads(counts).values())
    if not counted == listed == workload.matches:
        sys.exit(f"{name}: {counted} matches counted, {listed} written, but {workload.matches} are right")
    read = workload.named()
    named = sum(row[0] in read for row in rows)
    return {
        "workload": f"{name} {workload.about}",
        "rows": len(rows),
        "named": named,
        "matches": listed,
        "count named/s": named / count_s,
        "count rows/s": len(rows) / count_s,
        "write named/s": named / write_s,
        "write rows/s": len(rows) / write_s,
    }


# ------------------------------------------------------------------------------------------------- memory and growth

KEYED = EventType("A", {"id": "int"}), EventType("B", {"id": "int"})


def keyed_rules() -> Any:
    return parse_rules([Source("SEQ(A a, B b) WHERE a.id = b.id WITHIN 1 s", "keyed.sase", "sase")], KEYED)


def memory_over_ten_windows() -> str:
    """Rows held and process memory after each window of a stream ten windows long."""
    workload = WORKLOADS[0]
    window_events, engine, held, memory = 100_000, Engine(workload.rules()), [], []
    rows = workload.rows(window_events * 11)
    types = workload.types()

    def batch() -> Iterator[list[Event]]:
        block: list[Event] = []
        for i, (kind, ms, key, v) in enumerate(rows):
            block.append(Event.from_row((ms * 1000, "n", i, types[kind], key, v)))
            if len(block) == BATCH:
                yield block
                block = []

    for number, block in enumerate(batch(), start=1):
        engine.feed(block)
        engine.advance(block[-1][0] - 1)
        if number * BATCH % window_events == 0:
            held.append(engine.stored())
            memory.append(peak_mb())
    return (
        f"rows held after windows 1..{len(held)}: {', '.join(f'{n:,}' for n in held)}; "
        f"peak MB after window 2: {memory[1]:.0f}, after window {len(memory)}: {memory[-1]:.0f}; "
        f"growth {memory[-1] / memory[1]:.2f} x"
    )


def million_keys() -> str:
    """A million keys, each seen once, must leave nothing behind once a window has passed."""
    engine, a = Engine(keyed_rules()), KEYED[0]
    for start in range(0, 1_000_000, BATCH):
        engine.feed([Event.from_row((i, "n", i, a, i)) for i in range(start, start + BATCH)])
        engine.advance(start)
    held = engine.stored()
    engine.advance(1_000_000 + 1_000_000)
    return f"1,000,000 keys seen once: {held:,} rows held inside the window, {engine.stored()} after it has passed"


def growth_with_length(quick: bool) -> str:
    """Cost per event at the start and at the end of a long stream."""
    workload = WORKLOADS[0]
    events = workload.trace(400_000 if quick else 1_000_000)
    engine, times = Engine(workload.rules()), []
    size = len(events) // 4
    for part in range(4):
        blocks = batches_of(events[part * size : (part + 1) * size])
        started = time.process_time()
        for block in blocks:
            engine.feed(block)
            engine.advance(block[-1][0] - 1)
        times.append((time.process_time() - started) / size * 1e9)
    return f"ns per event by quarter of {len(events):,}: {', '.join(f'{t:.0f}' for t in times)}; " + (
        f"last / second {times[-1] / times[1]:.2f} x"
    )


def seconds_and_set_up(text: str, types: list[EventType], batches: list[list[Event]]) -> tuple[float, float]:
    rules = parse_rules([Source(text, "many.sase", "sase")], types)
    set_up, engine = cpu_seconds(lambda: Engine(rules))
    return min(cpu_seconds(lambda: drain(Engine(engine.program), batches))[0] for _ in range(3)), set_up


def growth_with_rules() -> str:
    """Cost per event with more and more rules that do not name its type, and of rules that begin alike."""
    batches = batches_of(WORKLOADS[0].trace(400_000))
    base_types = list(WORKLOADS[0].types().values())
    strangers, alike, set_ups = [], [], []
    for count in (0, 10, 100, 1000):
        text = WORKLOADS[0].text + "".join(f"\nR{i}: SEQ(S s, X{i} x) WITHIN 1 s" for i in range(count))
        types = [*base_types, EventType("S", {}), *(EventType(f"X{i}", {}) for i in range(count))]
        strangers.append((count, *seconds_and_set_up(text, types, batches)))
    for count in (1, 10, 100, 300):
        text = "\n".join(f"R{i}: SEQ(A a, B b, X{i} x) WHERE SAME[id] WITHIN 10 s" for i in range(count))
        types = [*base_types, *(EventType(f"X{i}", {"id": "int"}) for i in range(count))]
        alike.append((count, *seconds_and_set_up(text, types, batches)))
        set_ups.append(f"{count}: {alike[-1][2]:.2f} s")

    def ratios(timings: list[tuple[int, float, float]]) -> str:
        return ", ".join(f"{count}: {seconds / timings[0][1]:.2f} x" for count, seconds, _ in timings)

    return (
        f"W1 beside rules on other types: {ratios(strangers)} the time of W1 alone; "
        f"rules that begin alike (SEQ(A, B, X_i)): {ratios(alike)} the time of one; set-up {', '.join(set_ups)}"
    )


def counting() -> str:
    """Counting instead of listing, where a repetition makes the matches many."""
    a, b, c = (EventType(name, {}) for name in "ABC")
    rules = parse_rules([Source("SEQ(A a, B+ b[], C c) WITHIN 1 s", "repetition.sase", "sase")], (a, b, c))
    row = Event.from_row
    events = [row((0, "n", 0, a)), *(row((i, "n", i, b)) for i in range(1, 17)), row((20, "n", 20, c))]

    def listed() -> int:
        engine = Engine(rules)
        return len(engine.feed(events)) + len(engine.close())

    def counted() -> int:
        engine = Engine(rules, count_only=True)
        engine.feed(events)
        engine.close()
        return sum(engine.counts().values())

    list_s, listing = cpu_seconds(listed)
    count_s, counts = cpu_seconds(counted)
    assert listing == counts, (listing, counts)
    return (
        f"{counts:,} matches of 16 repeated events: listed in {list_s * 1e3:.1f} ms, counted in {count_s * 1e3:.2f} ms"
    )


QUESTIONS: dict[str, Callable[..., str]] = {
    "memory over ten windows": memory_over_ten_windows,
    "a million keys": million_keys,
    "growth with the stream": growth_with_length,
    "growth with the rules": growth_with_rules,
    "counting": counting,
}


def in_own_process(work: Callable[..., Any], *arguments: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def answer(name: str, quick: bool) -> str:
    gc.set_threshold(GC_THRESHOLD, 50, 50)
    question = QUESTIONS[name]
    return question(quick) if name == "growth with the stream" else question()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.engine", description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="W", help="W1 .. W5 (default: all, and the questions after)")
    parser.add_argument("--quick", action="store_true", help="one repetition instead of the best of three")
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {multiprocessing.cpu_count()} cores, one used, CPU seconds; "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    columns = ["workload", "events", "of its types", "matches", "of its types/s", "all/s", "reach", "limit/s"]
    columns += ["share of limit", "with creation", "kept", "peak MB", "of it state"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    missed = []
    chosen = [workload for workload in WORKLOADS if not options.workloads or workload.name in options.workloads]
    for workload in chosen:
        row = in_own_process(measure, workload.name, options.quick)
        print(
            f"| {row['workload']} | {row['events']:,} | {row['named']:,} | {row['matches']:,} | "
            f"**{row['named/s']:,.0f}** | {row['events/s']:,.0f} | {row['reach']:,} | "
            f"{row['limit/s']:,.0f} | {row['share of limit']:.1%} | {row['with creation/s']:,.0f} | "
            f"{row['kept/s']:,.0f} | {row['peak MB']:.0f} | {row['state MB']:.1f} |",
            flush=True,
        )
        if row["events/s"] < row["reach"]:
            missed.append(workload.name)
    columns = ["headwater run", "rows", "of its types", "matches", "--count, of its types/s", "all/s"]
    print(f"\n| {' | '.join((*columns, '--out, of its types/s', 'all/s'))} |\n{'|---' * (len(columns) + 2)}|")
    for workload in chosen:
        row = measure_command(workload.name, options.quick)
        print(
            f"| {row['workload']} | {row['rows']:,} | {row['named']:,} | {row['matches']:,} | "
            f"**{row['count named/s']:,.0f}** | {row['count rows/s']:,.0f} | "
            f"**{row['write named/s']:,.0f}** | {row['write rows/s']:,.0f} |",
            flush=True,
        )
    if not options.workloads:
        print()
        for name in QUESTIONS:
            print(f"- *{name}*: {in_own_process(answer, name, options.quick)}", flush=True)
    if missed:
        print(f"\nbelow what they should reach: {', '.join(missed)}")


if __name__ == "__main__":
    main()
