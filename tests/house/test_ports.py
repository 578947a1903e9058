"""Tests that run beside each other, in one clone or in several, do not take each other's ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.deploy.cluster.local import HOST
from headwater.deploy.cluster.local import PORTS as PORTS_OF_NETWORKS
from tests.kit import ports
from tests.kit.patience import output_of
from tests.kit.ports import BLOCK, PORTS, free_port, take_block

PROJECT = Path(__file__).parent.parent.parent


def test_a_port_is_not_given_again_before_all_others_were() -> None:
    given = [free_port() for _ in range(BLOCK // 2)]
    assert len(set(given)) == len(given)
    assert all(port in PORTS for port in given)


def test_a_port_that_something_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    monkeypatch.setattr(ports, "_ports", lambda: iter([taken, taken + 1]))
    with socket.create_server((HOST, taken)):
        assert free_port() == taken + 1


def test_a_block_is_taken_once_until_it_is_given_back() -> None:
    one, block = take_block()
    other, beside = take_block()
    with one, other:
        assert not set(block) & set(beside)
    again, free = take_block()
    with again:
        assert free == block


def test_two_processes_have_blocks_of_their_own() -> None:
    command = [sys.executable, "-c", "from tests.kit.ports import free_port; print(free_port(), flush=True); input()"]
    running = [
        subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    given = []
    for process in running:
        assert process.stdout is not None
        given.append(int(process.stdout.readline()))
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        output_of(process)
    assert len({(port - PORTS.start) // BLOCK for port in [*given, free_port()]}) == 3


def test_no_port_is_one_that_a_network_on_this_machine_takes() -> None:
    assert not set(PORTS) & set(PORTS_OF_NETWORKS)
