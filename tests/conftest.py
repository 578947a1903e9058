"""What tests of several files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from headwater.pipeline.spark.java import java_home
from headwater.pipeline.spark.session import spark_session
from headwater.protocol.errors import ConfigError

# By default, an example that takes longer than 200 ms fails, and so do examples that are drawn slowly: on a busy
# machine, any of them may be. All draws are the same in every run, like those of the other random tests.
settings.register_profile("unhurried", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

ON_THE_MACHINE: Final = "test_cluster", "test_faults_links", "test_end_to_end"
"""Files whose tests make devices, containers and networks with ports of their own on this machine, by what their names
begin with: they take turns, where tests run in several processes."""


class Shared(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """The tests of a file run in one process, one after the other; files are shared out."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "the machine" if Path(file).name.startswith(ON_THE_MACHINE) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shared:
    return Shared(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests that need one: starting it takes longer than most of them.

    There is one session in a process, so commands that start their own are run as processes of their own.
    """
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    try:
        java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    with spark_session("tests", "local[2]", {"spark.driver.memory": "1g"}) as session:
        yield session
