"""Tables: plain and whole in a pipe, the same columns with a bold header on a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest

from headwater.deploy.cli.tables import print_table, table_lines

HEADER = ("NAME", "EVENTS", "WHAT")
ROWS = [("n1", "1,200", "Temp[value > 45], :smile:"), ("node-2", "7", "")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_are_two_spaces_apart_and_figures_stand_to_the_right() -> None:
    assert table_lines(HEADER, ROWS, figures=(1,), indent=2) == [
        "  NAME    EVENTS  WHAT",
        "  n1       1,200  Temp[value > 45], :smile:",
        "  node-2       7",
    ]
    assert table_lines(HEADER, []) == ["NAME  EVENTS  WHAT"]


def test_in_a_pipe_nothing_is_cut_off_or_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = io.StringIO()
    print_table(("A", "B"), [("x" * 300, "y" * 300)], file=out)
    assert out.getvalue().splitlines()[1] == "x" * 300 + "  " + "y" * 300


def test_on_a_terminal_the_text_is_the_same_and_the_header_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    print_table(HEADER, ROWS, figures=(1,), indent=2, file=out)
    assert "\x1b[1mNAME" in out.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert [line.rstrip() for line in plain.splitlines()] == table_lines(HEADER, ROWS, figures=(1,), indent=2)


def test_on_a_narrow_terminal_cells_go_on_in_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    out = Terminal()
    print_table(("A", "B"), [("x" * 40, "y")], file=out)
    assert out.getvalue().count("x") == 40


def test_neither_a_plain_table_nor_the_command_imports_rich_or_networkx() -> None:
    code = (
        "import sys; import headwater.deploy.cli.command, headwater.node.daemon.process, "
        "headwater.coordinator.daemon.process, headwater.deploy.network.file; "
        "from headwater.deploy.cli.tables import print_table; print_table(('A',), [('b',)]); "
        "print(sorted({'rich', 'networkx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["A", "b", "[]"]
