"""REMOTE tables: static, versioned by event time, and collections."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from headwater.deploy.descriptions.remote import remote_tables
from headwater.node.remote.tables_in_files import load_remote_table
from headwater.protocol.errors import ConfigError, EventError
from headwater.protocol.remote import RemoteEntry, RemoteTable


def test_a_static_table_answers_at_any_time() -> None:
    table = RemoteTable.from_mapping({"a": 1, ("b", 2): "x"})
    assert table.lookup(("a",), -5) == 1
    assert table.lookup(("b", 2), 5) == "x"
    assert table.lookup(("c",), 5) is None
    assert table.lookup(("a", 1), 5) is None


def test_the_latest_version_that_is_valid_answers() -> None:
    table = RemoteTable([RemoteEntry(("a",), 2, 20), RemoteEntry(("a",), 1, 10)])
    assert [table.lookup(("a",), ts) for ts in (9, 10, 19, 20, 99)] == [None, 1, 1, 2, 2]


def test_entries_without_a_time_are_valid_before_all_others() -> None:
    table = RemoteTable([RemoteEntry(("a",), 2, 20), RemoteEntry(("a",), 0)])
    assert [table.lookup(("a",), ts) for ts in (-(10**18), 19, 20)] == [0, 0, 2]


def test_entries_of_the_same_key_and_time_form_a_collection() -> None:
    table = RemoteTable([(("a",), 1, 5), (("a",), (2, 3), 5), (("a",), 4, 6)])
    assert table.lookup(("a",), 5) == (1, 2, 3)
    assert table.lookup(("a",), 6) == 4


def test_keys_compare_by_value() -> None:
    table = RemoteTable([((1,), "one")])
    assert table.lookup((1.0,), 0) == "one"
    assert table.lookup(("1",), 0) is None


def test_columns_of_a_csv_table_have_one_kind_each(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("key1,key2,value,ts\n1,007,2.5,1970-01-01T00:00:01Z\n2,x,3,\n3,y,,\n")
    table = load_remote_table(str(file))
    assert table.lookup((1, "007"), 999_999) is None
    assert table.lookup((1, "007"), 1_000_000) == 2.5
    assert table.lookup((2, "x"), 0) == 3.0
    assert table.lookup((3, "y"), 0) is None


def test_json_values_may_be_lists_and_parquet_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"key": "a", "value": [1, "x", true]}\n\n{"key": 2, "value": null}\n')
    assert load_remote_table(str(tmp_path / "t.jsonl")).lookup(("a",), 0) == (1, "x", True)
    pyarrow.parquet.write_table(pyarrow.table({"key": ["a", "b"], "value": [1, 2]}), tmp_path / "t.parquet")
    assert load_remote_table(str(tmp_path / "t.parquet")).lookup(("b",), 0) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"key": "a", "value": 1}\n{"key": "a"}', r"t\.jsonl:2: the row has no 'value'"),
        ('{"key": "a", "value": 1}\n{"value": 1}', r"t\.jsonl:2: the row has no 'key'"),
        ('{"key": [1], "value": 1}', r"t\.jsonl:1: 'key' is not one value"),
        ('{"key": "a", "value": {}}', r"t\.jsonl:1: 'value' is neither"),
        ("[1]", r"t\.jsonl:1: the line is not a JSON object"),
        ('{"key": "a", "value": 1}\n{', r"t\.jsonl:2: the line is not JSON"),
    ],
)
def test_bad_rows_are_named_by_their_line(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(EventError, match=sentence):
        load_remote_table(str(tmp_path / "t.jsonl"))


def test_a_table_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"key": "a", "value": 1}')
    option = f"t={tmp_path / 't.jsonl'}"
    assert list(remote_tables([option])) == ["t"]
    with pytest.raises(ConfigError, match="twice"):
        remote_tables([option, option])
