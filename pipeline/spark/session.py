"""The one Spark session of a command: on this machine unless a master is named, quiet, and in UTC."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.spark.failures import in_a_sentence
from headwater.pipeline.spark.java import java_home
from headwater.pipeline.spark.shipping import is_shipped, write_code
from headwater.protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LOGGING: Final = Path(__file__).parent / "log4j2.properties"
JOBS_END_S: Final = 10.0  # how long a job that is given up may take to end

MEANING: Final = {
    # Times are microseconds since 1970 wherever a trace is read.
    "spark.sql.session.timeZone": "UTC",
    # A cell that is not what it should be is a bad row, which is told apart by a null, and never ends the job; sums of
    # hashes leave out what is beyond 64 bits.
    "spark.sql.ansi.enabled": "false",
    # A row of a CSV file that lacks cells, or has too many, is bad even where those are not asked for.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
}
"""Results depend on these, so no configuration of a cluster outweighs them."""

SETTINGS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "snappy",
    # Java never compiles a method beyond this many bytes; Spark then makes several of it, which Java does compile.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}

CONTEXT_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""What PySpark raises it also writes to standard error, with all of Java's trace; who catches it says what it means."""

_DEFAULT: Final = re.compile(r"\s*(spark\.[^\s=:]+)\s*[=:\s]\s*(.*)")


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session until the end of the block. Inside spark-submit it is the one that spark-submit has configured.

    ``master``: as Spark names them (``local[4]``, ``spark://host:7077``); without it, what spark-submit or the
    configuration says, or else all cores of this machine.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.logger import PySparkLogger
    except ImportError:
        raise ConfigError(
            "this command runs on Spark, and pyspark is not installed; write: pip install 'headwater[spark]'"
        ) from None
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what goes wrong it raises, too
    for logger in CONTEXT_LOGGERS:
        PySparkLogger.getLogger(logger).disabled = True
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Java already, and it knows the settings
        SparkContext._ensure_initialized()
        conf = SparkConf()
    else:
        os.environ["JAVA_HOME"] = str(java_home())
        conf = SparkConf().setAll(list(_defaults().items()))
    conf.setAppName(f"headwater {name}")
    for key, value in MEANING.items():
        conf.set(key, value)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        conf.setIfMissing(key, value)
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", LOCAL)
    local = conf.get("spark.master", LOCAL).startswith("local")
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise tasks get whichever is on the path
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise it looks for another address, and says so
        conf.setIfMissing("spark.driver.host", "127.0.0.1")
        conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1")
        conf.setIfMissing("spark.driver.memory", _memory())
        # The default of 200 is for clusters; here most of them would be empty.
        conf.setIfMissing("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
    if LOGGING.is_file():  # not in a zip file, and then spark-submit has said what is logged
        conf.setIfMissing("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    with _set_apart() as said:
        try:
            session = _started(conf)
        except Exception as error:
            raise ConfigError(f"Spark does not start on {conf.get('spark.master')}: {_why(error, said)}") from None
    with tempfile.TemporaryDirectory(prefix="headwater-code-") as folder:
        try:
            if not local and not is_shipped():
                code = Path(folder) / "headwater-code.zip"
                write_code(code)
                session.sparkContext.addPyFile(str(code))
            with _stopped_by_ctrl_c(), in_a_sentence():
                yield session
        finally:
            with suppress(Exception):  # Java may have ended before
                session.stop()


def _started(conf: SparkConf) -> SparkSession:
    """A session. Ctrl-C ends the waiting for it at once, and Java with it, which would otherwise stay for ever.

    A thread starts it: in the main thread PySpark would set its own handler of Ctrl-C, and what that raises may be lost
    in the middle of a call to Java.
    """
    from pyspark import java_gateway
    from pyspark.sql import SparkSession

    processes: list[subprocess.Popen[bytes]] = []
    names = vars(java_gateway)
    popen = names["Popen"]

    def noted(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(popen(*args, **options))
        return processes[-1]

    sessions: list[SparkSession] = []
    failures: list[Exception] = []

    def start() -> None:
        try:
            sessions.append(SparkSession.builder.config(conf=conf).getOrCreate())
        except Exception as error:
            failures.append(error)

    names["Popen"] = noted
    try:
        thread = threading.Thread(target=start, name="starting Spark", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        names["Popen"] = popen
    if failures:
        raise failures[0]
    return SparkSession.builder.getOrCreate()  # the same one, which this thread now knows, too


def _defaults() -> dict[str, str]:
    """What ``spark-defaults.conf`` says. Spark reads it, too, but values that are set here would come before it."""
    folder = os.environ.get("SPARK_CONF_DIR") or str(Path(os.environ.get("SPARK_HOME", "")) / "conf")
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {setting[1]: setting[2].strip() for line in lines if (setting := _DEFAULT.match(line))}


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends what is being waited for, and nothing is printed about it.

    PySpark's own handler talks to Java in the middle of another call to it, which fails with long traces; and Py4J
    writes the trace of every call that was broken off. What fails after Ctrl-C, as tidying up may, fails because of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:  # what is left to do then is short: to stop Spark, and to tidy up
            heard = True
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    logging.getLogger().addFilter(_not_of_py4j)
    try:
        yield
    except Exception as error:
        if heard:
            raise KeyboardInterrupt from error
        raise
    finally:
        logging.getLogger().removeFilter(_not_of_py4j)
        signal.signal(signal.SIGINT, before)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def end_jobs() -> None:
    """Has Spark give up whatever it still does, as after Ctrl-C: it would go on writing files."""
    from pyspark.sql import SparkSession

    with suppress(Exception):  # Java may have ended before
        session = SparkSession.getActiveSession()
        if session is None:
            return
        session.sparkContext.cancelAllJobs()
        until_s = time.monotonic() + JOBS_END_S
        while session.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < until_s:
            time.sleep(0.1)


@contextmanager
def _set_apart() -> Iterator[Path]:
    """Java writes warnings that no user can act on to standard error from its first moment on; they go to a file."""
    with tempfile.TemporaryDirectory(prefix="headwater-spark-") as folder:
        said = Path(folder) / "said"
        sys.stderr.flush()
        ours = os.dup(2)
        try:
            with said.open("wb") as file:
                os.dup2(file.fileno(), 2)
            yield said
        finally:
            os.dup2(ours, 2)
            os.close(ours)


def _why(error: Exception, said: Path) -> str:
    log = said.read_text(encoding="utf-8", errors="replace")
    if (gave_up := re.search(r"Reason: (.+)", log)) is not None:  # of a master; the error tells only what follows
        return gave_up[1].strip()
    heard = [*str(error).splitlines(), *log.splitlines()]
    causes = [line.strip(" :") for line in heard if re.search(r"(Exception|Error): \S", line)]
    return causes[0] if causes else heard[0]


def _memory() -> str:
    """As the environment says, as for all of Spark's programs; or half of what the machine has, 1 to 8 GB."""
    wanted = os.environ.get("SPARK_DRIVER_MEMORY")
    if wanted:
        return wanted
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        total = 4 << 30
    return f"{min(8, max(1, total // (2 << 30)))}g"
