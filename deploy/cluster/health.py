"""The health check of the container image: ``python -m headwater.deploy.cluster.health`` asks this container's process.

It may listen on all addresses, on loopback or on the container's own.
"""

from __future__ import annotations

import socket
import sys

from headwater.deploy.cluster.pages import ask

PORT = 8080


def main() -> int:
    for host in ("127.0.0.1", socket.gethostname()):
        answer = ask(f"{host}:{PORT}", "/health")
        if answer is not None:
            status, _ = answer
            print(f"{host}:{PORT} answers {status}")
            return 0 if status == 200 else 1
    print(f"no process answers on port {PORT}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
