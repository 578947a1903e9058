"""What tests of several files share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.spark import java_home, spark_session
from protocol.errors import ConfigError


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
