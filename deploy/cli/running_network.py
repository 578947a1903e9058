"""A client of a running network's coordinator, which it finds by run or address and queries over HTTP."""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster.runs import Run, the_run
from headwater.protocol.errors import ConfigError, RuleError

ANSWER_S_MAX: Final = 10.0  # for a look
CHANGE_S_MAX: Final = 600.0
"""For a change, which the coordinator answers when it holds. It gives up long before that if nodes do not answer."""
ANSWER_BYTES_MAX: Final = 64 << 20
ASKED_AT_ONCE: Final = 16

Json = dict[str, Any]


class Conflict(ConfigError):
    """What is asked for does not go with what is there."""


@dataclass(frozen=True, slots=True)
class Running:
    """The coordinator of a network, and what is needed to be heard by it."""

    url: str
    token: str | None = None
    token_from: str = ""
    """Where the token was found, for people."""
    run: Run | None = None
    """The run, if it was found by that."""

    # --------------------------------------------------------------------------------------------------------- looking

    def look(self, path: str) -> Json:
        status, answer = self._ask("GET", path, timeout_s=ANSWER_S_MAX)
        if status == 404:
            raise ConfigError(f"the server at {self.url} is not a Headwater coordinator")
        if status != 200:
            raise self._error(status, answer)
        return answer

    def rules(self) -> list[Json]:
        """Rules that are deployed, and those that have ended and are still being evaluated."""
        return list(self.look("/rules")["rules"])

    def subscriptions(self) -> list[Json]:
        """Those that have not ended."""
        return [
            subscription
            for subscription in self.look("/subscriptions")["subscriptions"]
            if subscription["until_us"] is None
        ]

    def nodes(self) -> list[Json]:
        """In the order of the network file."""
        return list(self.look("/nodes")["nodes"])

    def evaluated_at(self) -> dict[str, list[str]]:
        """By rule the nodes that evaluate it, as they say themselves. One that does not answer is left out."""
        names = [node["name"] for node in self.nodes() if node["state"] == "up"]
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            tasks_of_nodes = list(pool.map(self._tasks, names))
        nodes_of_rules: dict[str, list[str]] = {}
        for name, tasks in zip(names, tasks_of_nodes, strict=True):
            for task in sorted(tasks):
                nodes_of_rules.setdefault(task, []).append(name)
        return nodes_of_rules

    def _tasks(self, node: str) -> set[str]:
        """The rules that a node evaluates as a whole."""
        status, answer = self._ask("GET", f"/nodes/{quote(node, safe='')}/tables", timeout_s=ANSWER_S_MAX)
        if status != 200:
            return set()
        newest: dict[str, Json] = {}
        for work in answer.get("work", ()):
            if work["tree"] not in newest or work["epoch"] > newest[work["tree"]]["epoch"]:
                newest[work["tree"]] = work
        tasks = (task for work in newest.values() for task in work["tasks"])
        return {task.removeprefix("rule ") for task in tasks if task.startswith("rule ")}

    # -------------------------------------------------------------------------------------------------------- changing

    def change(self, method: str, path: str, body: Json | None = None) -> Json:
        """Have something changed; what the coordinator says when it holds. An error says why it does not."""
        if self.token is None:
            raise ConfigError(
                "changing a network needs the token of its coordinator: --token-file names the file that holds it "
                "(`token` in the coordinator's data folder), --token or HEADWATER_TOKEN says it"
            )
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": secrets.token_hex(16)}
        status, answer = self._ask(method, path, body, headers, timeout_s=CHANGE_S_MAX)
        if status != 200:
            raise self._error(status, answer)
        return answer

    # ---------------------------------------------------------------------------------------------------------- asking

    def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float,
    ) -> tuple[int, Json]:
        where = urlsplit(self.url)
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        connection = kind(where.netloc, timeout=timeout_s)
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        is_sent = False
        try:
            connection.request(method, path, data, {**sent, **(headers or {})})
            is_sent = True
            response = connection.getresponse()
            raw = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise RunFailed(self._silent(error, method, is_sent)) from None
        finally:
            connection.close()
        try:
            answer = json.loads(raw)
            assert isinstance(answer, dict)
        except (ValueError, AssertionError):
            raise ConfigError(f"the server at {self.url} is not a Headwater coordinator") from None
        return response.status, answer

    def _silent(self, error: Exception, method: str, is_sent: bool) -> str:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if is_sent and method != "GET":
            return (
                f"the coordinator at {self.url} has not answered ({why}), so whether the change holds is not known; "
                "headwater rules and headwater subscriptions show it when it is back"
            )
        hint = (
            "headwater ps shows how it is" if self.run is not None else "is it running, and is this its --http address?"
        )
        return f"the coordinator does not answer at {self.url}: {why}; {hint}"

    def _error(self, status: int, answer: Json) -> Exception:
        sentence = str(answer.get("error", f"the coordinator answered {status}"))
        if status == 401:
            return ConfigError(
                f"the coordinator at {self.url} does not take this token (from {self.token_from}); it wants the one in "
                "the file `token` of its data folder"
            )
        if status >= 500:
            return RunFailed(sentence)
        kinds: dict[int, type[Exception]] = {400: RuleError, 409: Conflict}
        return kinds.get(status, ConfigError)(sentence)


def reached(
    name: str | None,
    folder: Path,
    coordinator: str | None,
    token: str | None,
    token_file: Path | None,
    *,
    purpose: str,
) -> Running:
    """The network that is meant: the run of this folder, or the one whose coordinator is named."""
    if token is not None and token_file is not None:
        raise ConfigError("--token and --token-file both say the token; leave one out")
    access = (
        (token, "--token, or HEADWATER_TOKEN") if token_file is None else (_read_token(token_file), str(token_file))
    )
    if coordinator is not None:
        if name is not None:
            raise ConfigError("--name is for runs of this folder, --coordinator for any network; leave one out")
        return Running(_url(coordinator), *access)
    run = the_run(folder, name, purpose=purpose)
    plan = run.plan()
    if not run.is_kept():
        raise ConfigError(f"{run.name} is not up; start it with: headwater up {plan.network}")
    if access[0] is None and plan.token_file is not None:
        access = (_read_token(Path(plan.token_file)), plan.token_file)
    return Running(f"http://{plan.coordinator().http}", *access, run=run)


def _url(text: str) -> str:
    whole = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(whole)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path not in ("", "/") or parts.query:
        where = "where nodes reach it" if text.startswith("tcp://") else "not the HTTP address of a coordinator"
        raise ConfigError(f"{text!r} is {where}; write the address as in --coordinator http://127.0.0.1:7080")
    return f"{parts.scheme}://{parts.netloc}"


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"the token in {file} cannot be read: {why}") from None
    if not token or "\n" in token:
        raise ConfigError(
            f"{file} holds no token; the coordinator keeps its own in the file `token` of its data folder"
        )
    return token


def in_reading_order(names: list[str], rules: list[Json]) -> Iterator[str]:
    """Names of rules, each before those whose composites it reads: so each can be undeployed in turn."""
    by_name = {rule["name"]: rule for rule in rules}
    waiting = list(dict.fromkeys(names))
    while waiting:
        read = {name for rule in waiting for name in by_name[rule]["reads"] if by_name[rule]["emits"] != name}
        free = next((rule for rule in waiting if by_name[rule]["emits"] not in read), waiting[0])
        waiting.remove(free)
        yield free
