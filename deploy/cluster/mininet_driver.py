"""Runs a Mininet network for a run: builds it, reports where its hosts are, and removes it when told to end.

Mininet is a package of the system's own Python, so this file is run by that and uses nothing but Mininet and the
standard library: ``/usr/bin/python3 -I mininet_driver.py ORDER.json ANSWER.json``. The order says what to build (see
``deploy/cluster/in_mininet.py``); the answer holds for every node the process whose network it is. What runs in the
hosts is started by the keeper of the run.
"""

import json
import os
import signal
import sys
from typing import Any

from mininet.link import Link
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge


def build(order: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    net = Mininet(switch=LinuxBridge, controller=None, link=Link, build=False)
    # Hosts are called h0, h1, ..: nodes may be called anything, and Mininet makes names of devices out of these.
    hosts = {node: net.addHost(f"h{number}", ip=None) for number, node in enumerate(order["nodes"])}
    bridge = net.addSwitch(order["bridge"], dpid="1")
    for number, (node, host) in enumerate(hosts.items()):
        outer = f"{order['bridge']}m{number}"
        link = net.addLink(host, bridge, intfName1=order["management_device"], intfName2=outer)
        link.intf1.setIP(order["nodes"][node], order["prefix_length"])
    for wire in order["wires"]:
        first, other = wire["ends"]
        link = net.addLink(
            hosts[first["node"]], hosts[other["node"]], intfName1=first["device"], intfName2=other["device"]
        )
        link.intf1.setIP(first["address"], 30)
        link.intf2.setIP(other["address"], 30)
    net.build()
    net.start()
    bridge.cmd(f"ip addr add {order['gateway']}/{order['prefix_length']} dev {order['bridge']}")
    for node, lines in order["shaping"].items():
        for line in lines:
            complaint = hosts[node].cmd(f"tc {line}").strip()
            if complaint:
                raise RuntimeError(f"tc {line}: {complaint}")
    return net, hosts


def main(order_file: str, answer_file: str) -> None:
    ending_signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals)
    with open(order_file, encoding="utf-8") as file:
        order = json.load(file)
    net, hosts = build(order)
    with open(f"{answer_file}.new", "w", encoding="utf-8") as file:
        json.dump({node: host.pid for node, host in hosts.items()}, file)
    os.replace(f"{answer_file}.new", answer_file)
    signal.sigwait(ending_signals)
    net.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
