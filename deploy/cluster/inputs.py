"""The files that a network file names, which must be readable wherever its nodes and its coordinator run."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import yaml

from headwater.deploy.cluster.run_plan import file_name
from headwater.deploy.cluster.runs import Run
from headwater.deploy.network.file import NetworkFile
from headwater.protocol.edge import MqttFeed, MqttTo, TraceFeed
from headwater.protocol.languages.rule_texts import LANGUAGES


def named_files(file: NetworkFile) -> list[Path]:
    """The network file itself and all it names: rules, statistics, functions, traces, secrets for brokers. Without
    doubles, in order."""
    files = [file.path, *_rule_files(file.path)]
    files += [file.statistics.file] if file.statistics.file is not None else []
    files += [Path(file.network.functions.file)] if file.network.functions is not None else []
    files += [Path(feed.path) for feed in (*file.running(), *file.feeds) if isinstance(feed, TraceFeed)]
    for end in (*file.running(), *file.destinations):
        if isinstance(end, MqttFeed | MqttTo):
            broker = end.broker
            names = (broker.password_file, broker.ca_file, broker.cert_file, broker.key_file)
            files += [Path(name) for name in names if name is not None]
    return list(dict.fromkeys(Path(os.path.abspath(path)) for path in files))


def _rule_files(file: Path) -> list[Path]:
    """The file has been read and found right; only the names are wanted."""
    read = yaml.safe_load(file.read_text(encoding="utf-8"))
    rules = read.get("rules") or []
    texts = [str(text).strip() for text in ([rules] if isinstance(rules, str) else rules)]
    return [file.parent / text for text in texts if "\n" not in text and Path(text).suffix.lower() in LANGUAGES]


def readable_for(run: Run, path: Path, user: int) -> Path:
    """The file, or a copy of it in the folder of the run, if this user could not read the file itself."""
    if path.stat().st_mode & stat.S_IROTH:
        return path
    folder = run.folder / "inputs"
    folder.mkdir(mode=0o700, exist_ok=True)
    copy = folder / file_name(str(path))[-200:]
    copy.unlink(missing_ok=True)
    shutil.copyfile(path, copy)
    copy.chmod(0o400)
    os.chown(copy, user, user)
    return copy
