"""What Spark cannot do is said in one sentence, and Ctrl-C ends a command quietly; both leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater.pipeline.spark.failures import JobFailed, failure, in_a_sentence
from headwater.pipeline.spark.java import java_home
from headwater.protocol.errors import ConfigError
from tests.kit.patience import output_of

DEEP = """An error occurred while calling o42.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file
\t... 1 more
Caused by: {cause}
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("cause", "kind", "said"),
    [
        (
            "java.io.EOFException: Unexpected end of input stream in file:/data/a.csv.gz",
            ConfigError,
            "/data/a.csv.gz is damaged, or only a part of a file: Unexpected end of input stream in it; fetch or",
        ),
        ("java.io.IOException: No space left on device", JobFailed, "no space is left on the disk"),
        ("java.lang.OutOfMemoryError: Java heap space", JobFailed, "ran out of memory; give it more"),
        ("java.io.FileNotFoundException: /data/x (Permission denied)", ConfigError, "permission denied for /data/x"),
    ],
)
def test_the_innermost_cause_decides_what_is_said(cause: str, kind: type[Exception], said: str) -> None:
    found = failure(Exception(DEEP.format(cause=cause)))
    assert isinstance(found, kind)
    assert said in str(found)
    assert "\n" not in str(found)


def test_unforeseen_failures_are_told_without_codes_and_traces() -> None:
    text = "boo\n: org.apache.spark.SparkException: [SOME_CODE] The sky fell. SQLSTATE: XX000\n\tat org.apache.X(Y:1)\n"
    assert str(failure(Exception(text))) == "Spark has given up: The sky fell"


def test_what_spark_raises_is_translated_and_not_printed(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    from pyspark.sql import functions as F

    with pytest.raises(JobFailed, match="Spark has given up: this cannot be") as caught, in_a_sentence():
        spark.range(3).select(F.raise_error(F.lit("this cannot be"))).collect()
    assert "\n" not in str(caught.value)
    with pytest.raises(JobFailed, match="`nosuch`"), in_a_sentence():
        spark.range(3).select(F.expr("nosuch + 1"))
    assert "Traceback" not in capfd.readouterr().err


def test_other_errors_and_other_connections_are_left_alone(spark: Any) -> None:
    with pytest.raises(ZeroDivisionError), in_a_sentence():
        raise ZeroDivisionError
    with pytest.raises(ConnectionRefusedError), in_a_sentence():
        raise ConnectionRefusedError


@pytest.mark.parametrize("during", ["starting Spark", "reading and counting"])
def test_ctrl_c_ends_a_command_quietly_and_leaves_nothing(tmp_path: Path, during: str) -> None:
    try:
        java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    (tmp_path / "much.yaml").write_text(
        "generate: {duration: 10d, nodes: 3, streams: [{type: A, rate: 100/s, attributes: {v: {normal: [0, 1]}}}]}\n"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headwater.deploy.cli.command",
            "traces",
            "much.yaml",
            "--out",
            "much",
            "--master",
            "local[1]",
        ],
        cwd=tmp_path,
        env={**os.environ, "SPARK_DRIVER_MEMORY": "1g", "PYTHONPATH": str(Path(__file__).parent.parent.parent)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        heard = []
        for line in process.stderr:
            heard.append(line)
            if line.startswith(during):
                break
        while "java" not in running_in(process.pid) and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Java hears it, too
        _, rest = output_of(process)  # until Java, which writes there, too, has ended
        assert (process.returncode, rest) == (130, "headwater: stopped\n"), "".join(heard) + rest
        assert [each.name for each in tmp_path.iterdir()] == ["much.yaml"]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def running_in(group: int) -> set[str]:
    """The names of the programs of a process group."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            before, _, after = stat.read_text().rpartition(")")
            if int(after.split()[2]) == group:
                found.add(before.partition("(")[2])
    return found
