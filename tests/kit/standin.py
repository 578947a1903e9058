"""A program that stands in for a node or a coordinator in tests of what starts and ends processes.

    python standin.py NAME [--http HOST:PORT] [--ends FILE] [--exit CODE] [--deaf] [--after HOST:PORT ..]

It answers ``/ready``, appends its name to a file when it is asked to end, ends at once, or does not listen at all.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import json
import signal
import sys
import threading


class Pages(http.server.BaseHTTPRequestHandler):
    after: tuple[str, ...] = ()
    """It is not ready before these are."""

    def do_GET(self) -> None:
        missing = [each for each in self.after if not answers(each)]
        body = json.dumps({"ready": not missing, "missing": missing}).encode()
        self.send_response(503 if missing else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=1)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--http")
    parser.add_argument("--ends")
    parser.add_argument("--exit", type=int)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--after", nargs="*", default=[])
    given = parser.parse_args()
    Pages.after = tuple(given.after)
    print(f"{given.name} says hello", flush=True)
    if given.exit is not None:
        print(f"{given.name} cannot go on", file=sys.stderr)
        return int(given.exit)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if given.deaf else lambda *_: asked.set())
    if given.http is not None:
        host, _, port = given.http.rpartition(":")
        server = http.server.ThreadingHTTPServer((host, int(port)), Pages)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"{given.name} is there", flush=True)
    asked.wait()
    if given.ends is not None:
        with open(given.ends, "a") as file:
            file.write(f"{given.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
