"""A web server that answers after drawn latencies: a process of its own for ``benchmarks/remote.py``.

    python -m benchmarks.remote_server QUERY LEAST_US GREATEST_US

It says at which port it listens, and ends with its standard input. ``/elements/7,9`` answers ``{"7": 1, "9": 3}`` when
the slowest of these elements is due; any number of requests may be under way at once. It waits with ``select``, whose
timeout counts microseconds: an event loop on epoll waits for whole milliseconds.
"""

from __future__ import annotations

import heapq
import json
import select
import socket
import sys
import time
from itertools import count

from headwater.deploy.experiments.eires.station import Range, drawn_latency_us
from headwater.deploy.experiments.eires.synthetic import TABLE, Synthetic

CHUNK = 65_536


class ElementServer:
    """All connections of one server, in one thread."""

    def __init__(self, query: str, latency_us: Range) -> None:
        self._values = Synthetic(query, "DS1", "any", 0, 0)
        self._latency_us = latency_us
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self._received: dict[socket.socket, bytes] = {}
        self._due: list[tuple[float, int, socket.socket, bytes]] = []
        self._serial = count()

    def serve(self) -> None:
        """Until standard input ends."""
        while True:
            timeout_s = max(0.0, self._due[0][0] - time.perf_counter()) if self._due else None
            ready, _, _ = select.select([sys.stdin, self._listening, *self._received], [], [], timeout_s)
            if sys.stdin in ready:
                return
            if self._listening in ready:
                connection, _ = self._listening.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._received[connection] = b""
            for connection in [connection for connection in self._received if connection in ready]:
                self._read(connection)
            while self._due and self._due[0][0] <= time.perf_counter():
                _, _, connection, answer = heapq.heappop(self._due)
                if connection in self._received:
                    connection.sendall(answer)

    def _read(self, connection: socket.socket) -> None:
        try:
            received = connection.recv(CHUNK)
        except ConnectionError:
            received = b""
        if not received:
            del self._received[connection]
            connection.close()
            return
        *requests, rest = (self._received[connection] + received).split(b"\r\n\r\n")
        self._received[connection] = rest
        for request in requests:
            self._answer(connection, request)

    def _answer(self, connection: socket.socket, request: bytes) -> None:
        arrived_s = time.perf_counter()
        path = request.split(b" ", 2)[1].decode()
        keys = [int(key) for key in path.rsplit("/", 1)[1].replace("%2C", ",").split(",")]
        body = json.dumps({str(key): self._values.value(TABLE, (key,)) for key in keys}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        latency_us = max(drawn_latency_us((TABLE, (key,)), self._latency_us) for key in keys)
        heapq.heappush(self._due, (arrived_s + latency_us / 1e6, next(self._serial), connection, head + body))


def main() -> None:
    query, least, greatest = sys.argv[1:]
    server = ElementServer(query, (float(least), float(greatest)))
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
