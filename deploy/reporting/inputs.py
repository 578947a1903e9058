"""The runs that a report covers: folders from ``headwater up`` or ``simulate --record``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from headwater.deploy.cluster.run_plan import COORDINATOR
from headwater.deploy.cluster.runs import Run, runs_in
from headwater.deploy.network.file import read_network, running_network
from headwater.deploy.reporting.shapes import shape_of
from headwater.pipeline.report.inputs import Recorded
from headwater.pipeline.report.shape import RECORDING, Shape, read_recording
from headwater.protocol.errors import ConfigError, HeadwaterError


def find_runs(names: Sequence[str], home: Path) -> tuple[list[Recorded], list[str]]:
    """The runs by these names or in these folders, each with a label of its own; and what is to be said of them."""
    folders = [_folder(name, home) for name in names]
    doubled = [str(folder) for folder, times in Counter(folders).items() if times > 1]
    if doubled:
        raise ConfigError(f"{doubled[0]} is named twice; name every run once")
    remarks: list[str] = []
    runs = [_recorded(folder, remarks) for folder in folders]
    return _labelled(runs, folders), remarks


def _folder(name: str, home: Path) -> Path:
    for folder in (Path(name), home / name):
        if (folder / RECORDING).is_file() or Run(folder).exists():
            return folder.resolve()
    there = ", ".join(run.name for run in runs_in(home))
    hint = f"runs in {home}: {there}" if there else f"{home} holds no run"
    if Path(name).is_dir():
        raise ConfigError(
            f"{name} is not a run: it has neither plan.json (headwater up) nor {RECORDING} (simulate --record)"
        )
    raise ConfigError(f"there is no run {name!r}; {hint}. Name one, or the folder of a recorded simulation")


def _recorded(folder: Path, remarks: list[str]) -> Recorded:
    if (folder / RECORDING).is_file():
        shape = read_recording(folder)
        from headwater.deploy.cluster.run_plan import file_name

        return Recorded(
            folder.name, shape, {node: folder / "data" / file_name(node) / "records" for node in shape.nodes}
        )
    run = Run(folder)
    plan = run.plan()
    if run.is_kept():
        remarks.append(f"{run.name} is still up; the report covers what its nodes have written so far")
    data = {process.name: Path(process.data) for process in plan.nodes() if process.data is not None}
    return Recorded(folder.name, _shape(run, remarks), {node: path / "records" for node, path in data.items()})


def _shape(run: Run, remarks: list[str]) -> Shape:
    """What the coordinator was told when it first started; the network file where it has left nothing."""
    from headwater.coordinator.daemon.folder import read_setup

    plan = run.plan()
    restarts = {process["name"]: process["restarts"] for process in run.state().get("processes", ())}
    data = plan.coordinator().data
    setup = None
    if data is not None:
        try:
            setup = read_setup(Path(data))
        except (HeadwaterError, OSError) as error:
            remarks.append(f"{run.name}: {error}; the network file is read instead")
    if setup is not None:
        replayed = any(source.replayed for source in setup.network.sources)
        return shape_of(
            setup.network, setup.id, setup.network.strategy, run=setup.run, replayed=replayed, restarts=restarts
        )
    if setup is None and (data is None or Path(data).exists()):
        remarks.append(
            f"{run.name}: {COORDINATOR} has left no description of the network; the file {plan.network} is read"
        )
    network = running_network(read_network(Path(plan.network)))
    replayed = any(source.replayed for source in network.sources)
    return shape_of(network, Path(plan.network).stem, network.strategy, replayed=replayed, restarts=restarts)


def _labelled(runs: Sequence[Recorded], folders: Sequence[Path]) -> list[Recorded]:
    """Runs under the names of their folders; with those of the folders above where they would be called the same."""
    labels = [folder.name for folder in folders]
    depth = 1
    while len(set(labels)) < len(labels):
        depth += 1
        labels = ["/".join(folder.parts[-depth:]) for folder in folders]
    return [Recorded(label, run.shape, run.folders) for label, run in zip(labels, runs, strict=True)]
