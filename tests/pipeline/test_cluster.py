"""The commands on a Spark cluster: a real master and worker, whose tasks run in other processes and another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from headwater.pipeline.spark.java import java_home
from headwater.protocol.errors import ConfigError
from tests.kit.patience import COMMAND_S, output_of, run_to_its_end, until
from tests.kit.ports import free_port

PROJECT: Final = Path(__file__).parent.parent.parent
DEFAULTS: Final = """\
# A cluster whose own store cannot be reached: all that commands read and write is in files.
spark.hadoop.fs.defaultFS      hdfs://127.0.0.1:1
spark.sql.shuffle.partitions = 2
spark.log.level                ERROR
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster, and a folder in which commands are typed."""

    master: str
    folder: Path
    work: Path
    """Where the tasks run."""
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        found = run_to_its_end(
            words,
            cwd=self.folder,
            env=self.environment,
            text=True,
        )
        assert found.returncode == 0, f"{' '.join(words)} ended with {found.returncode}:\n{found.stderr[-3000:]}"
        return str(found.stdout)

    def headwater(self, *words: str) -> str:
        return self.run(sys.executable, "-m", "headwater.deploy.cli.command", *words)

    def submit(self, *words: str) -> Any:
        """The JSON that a command prints. spark-submit gives everything that it says on one output."""
        submit = str(Path(self.environment["SPARK_HOME"]) / "bin" / "spark-submit")
        job = ["--py-files", "job/headwater.zip", "job/headwater_job.py"]
        said = self.run(submit, "--master", self.master, *job, *words, "--json")
        return json.loads(said[said.index("{") :])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    try:
        java = java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    import pyspark

    home = tmp_path_factory.mktemp("cluster")
    folder = home / "borg"
    shutil.copytree(PROJECT / "examples" / "borg", folder)
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(DEFAULTS, encoding="utf-8")
    environment = {
        **os.environ,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DRIVER_MEMORY": "1g",
        "PYSPARK_PYTHON": str(python_without_headwater(home)),
    }
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    begun: list[subprocess.Popen[bytes]] = []
    try:
        for name, words in (
            ("master.Master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]),
            (
                "worker.Worker",
                ["--cores", "2", "--memory", "1g", "--webui-port", "0", "-d", str(home / "work"), master],
            ),
        ):
            begun.append(daemon(name, words, home, environment))
        until_said(home / "worker.Worker.log", "Successfully registered with master", begun)
        yield Place(master, folder, home / "work", {**environment, "PYTHONPATH": str(PROJECT)})
    finally:
        for process in reversed(begun):
            process.terminate()
            output_of(process)


def python_without_headwater(folder: Path) -> Path:
    """What Headwater needs is there, and Headwater itself is not: it must come with the job."""
    libraries = os.pathsep.join(dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib")))
    script = folder / "python"
    # Without site, nothing is read that makes an editable installation known.
    script.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="$(echo "$PYTHONPATH" | tr : "\\n" | grep -vx "{PROJECT}" | paste -sd :):{libraries}" '
        f'exec "{sys.executable}" -S "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def daemon(name: str, words: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    starter = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    # Only there must the log say what happens.
    settings = {**environment, "SPARK_CONF_DIR": str(folder)}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [starter, f"org.apache.spark.deploy.{name}", *words], cwd=folder, env=settings, stdout=log, stderr=log
        )


def until_said(log: Path, text: str, running: list[subprocess.Popen[bytes]]) -> None:
    def alive() -> None:
        assert all(process.poll() is None for process in running), log.read_text(encoding="utf-8", errors="replace")

    until(
        lambda: text in log.read_text(encoding="utf-8", errors="replace"), f"{log} says {text!r}", alive=alive,
        seconds=COMMAND_S,
    )  # fmt: skip


def test_commands_run_on_a_cluster_with_relative_names(cluster: Place) -> None:
    cluster.headwater("job", "--out", "job")
    manifest = cluster.submit("traces", "borg.yaml", "--input", ".", "--out", "trace")
    assert manifest["events"] == 5_192
    cluster.headwater("up", "network.yaml", "--name", "borg")
    try:
        # Without spark-submit, the command itself brings its code to the tasks.
        said = json.loads(cluster.headwater("replay", "trace", "--only-known", "--json", "--master", cluster.master))
    finally:
        cluster.headwater("down")
    assert (said["events"], said["late"], said["tasks"]) == (3_606, 0, 2)
    verdict = cluster.submit(
        "verify", "trace", "--network", "network.yaml", "--only", "Retried", "--delivered", ".headwater/borg"
    )
    assert verdict["equal"]
    assert verdict["rules"][0]["expected"] == 115
    brought = {file.name for file in cluster.work.glob("app-*/*/headwater*.zip")}
    assert brought == {"headwater.zip", "headwater-code.zip"}
