"""The container image: built from the sources of this project when it is first needed, then reused.

The build itself reaches no package index: dependencies are fetched beforehand, by the pip of this machine as it is
configured here, and handed to it. Where debootstrap is installed, the base is made by it once; else it is pulled.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from headwater.deploy.cluster.host import call, succeeds, tool
from headwater.pipeline.spark.shipping import HOME, code_files
from headwater.protocol.errors import ConfigError

FILES: Final = ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE")
IMAGE: Final = "localhost/headwater"
BASE: Final = "localhost/headwater-base:bookworm"
PULLED_BASE: Final = "docker.io/library/python:3.12-slim"
OF_OLDER: Final = ("async-timeout>=4.0.3",)
"""What dependencies need where Python is older than here (redis, before 3.11.3): pip judges that by the Python that it
runs in, not by the one that it fetches for."""
KEPT_IMAGES: Final = 3  # older ones are removed when a new one is built
GLIBC: Final = ("2_34", "2_31", "2_28", "2_26", "2_17", "2_12", "2_5")  # what wheels may ask for; Debian 12 has 2.36


def cache() -> Path:
    """Where the base and wheels are kept, outside the project."""
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "headwater"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def image(environment: Mapping[str, str], say: Callable[[str], None]) -> str:
    """The image of this version of the sources; built if there is none."""
    if not (HOME / "Dockerfile").is_file():
        raise ConfigError(
            "the sources of headwater are not here, so no image can be built of them; "
            "name one that has been built elsewhere with --image"
        )
    name = f"{IMAGE}:{_digest()[:12]}"
    settings = dict(environment)
    if not exists(name, settings):
        base = _base(settings, say)
        wheels = _wheels(base, settings, say)
        say("building the container image")
        _build(name, base, wheels, settings)
        _tidy_up(settings)
    return name


def exists(name: str, environment: dict[str, str]) -> bool:
    return succeeds(["podman", "image", "exists", name], environment=environment)


def _sources() -> Iterator[Path]:
    for name in FILES:
        if (HOME / name).is_file():
            yield HOME / name
    yield from code_files()


def _digest() -> str:
    """Of everything that goes into the image."""
    digest = hashlib.sha256()
    for file in _sources():
        content = file.read_bytes()
        digest.update(f"{file.relative_to(HOME)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------------------------- base


def _base(environment: dict[str, str], say: Callable[[str], None]) -> str:
    if exists(BASE, environment):
        return BASE
    if tool("debootstrap") is None:
        if not exists(PULLED_BASE, environment):
            say(f"pulling {PULLED_BASE}")
            call(["podman", "pull", "-q", PULLED_BASE], environment=environment, timeout_s=600)
        return PULLED_BASE
    packed = cache() / f"base-bookworm-{platform.machine()}.tar.gz"
    if not packed.exists():
        say("making the base image with debootstrap; this takes a minute or two, once")
        with tempfile.TemporaryDirectory(dir=cache()) as folder:
            root = str(Path(folder, "root"))
            include = "--include=python3,python3-venv"
            call(["debootstrap", "--variant=minbase", include, "bookworm", root], timeout_s=900)
            fresh = Path(folder, "base.tar.gz")
            shutil.rmtree(Path(root, "var/cache/apt/archives"), ignore_errors=True)
            shutil.rmtree(Path(root, "var/lib/apt/lists"), ignore_errors=True)
            call(["tar", "-C", root, "--use-compress-program", "gzip -1", "-cf", str(fresh), "."], timeout_s=300)
            fresh.replace(packed)
    say("importing the base image")
    call(["podman", "import", str(packed), BASE], environment=environment, timeout_s=300)
    return BASE


# -------------------------------------------------------------------------------------------------------- dependencies


def _wheels(base: str, environment: dict[str, str], say: Callable[[str], None]) -> Path:
    """A folder with the dependencies for the Python of the base, as wheels."""
    with (HOME / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    drivers = project["project"]["optional-dependencies"]["remote"]
    requirements = [*project["project"]["dependencies"], *drivers, *project["build-system"]["requires"], "wheel"]
    requirements += OF_OLDER
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = call(
        ["podman", *OPTIONS, "run", "--rm", "--network", "none", base, "python3", "-c", code], environment=environment
    ).strip()
    key = hashlib.sha256("\n".join([version, platform.machine(), *requirements]).encode()).hexdigest()[:12]
    folder = cache() / f"wheels-{key}"
    if folder.is_dir():
        return folder
    if not succeeds([sys.executable, "-m", "pip", "--version"]):
        raise ConfigError(f"the dependencies of the image are fetched with pip, which {sys.executable} does not have")
    say("fetching the dependencies of the image")
    with tempfile.TemporaryDirectory(dir=cache()) as fresh:
        machine = platform.machine()
        platforms = [f"--platform=manylinux_{glibc}_{machine}" for glibc in GLIBC]
        platforms += [f"--platform=manylinux2014_{machine}", f"--platform=manylinux1_{machine}"]
        options = ["--only-binary=:all:", f"--python-version={version}", "--implementation=cp", *platforms]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *options]
        call([*command, "--dest", str(Path(fresh, "wheels")), *requirements], timeout_s=600)
        try:
            Path(fresh, "wheels").rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was faster
                raise
    return folder


# --------------------------------------------------------------------------------------------------------------- build

OPTIONS: Final = ("--runtime", "runc", "--cgroup-manager", "cgroupfs")
"""Of podman: these work also where there is no systemd."""


def _build(name: str, base: str, wheels: Path, environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as context:
        for file in _sources():
            target = Path(context, file.relative_to(HOME))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
        shutil.copytree(wheels, Path(context, "wheels"))
        # Containers need not be running for this, and the health check is one of the docker format.
        options = ["--isolation", "chroot", "--layers", "--format", "docker", "--build-arg", f"BASE={base}"]
        call(["buildah", "build", *options, "-t", name, context], environment=environment, timeout_s=900)


def _tidy_up(environment: dict[str, str]) -> None:
    """Remove images of older sources, but for the latest few; one that is in use stays.

    The latest of what they were built from stays, too: it holds the layer with the dependencies.
    """
    ours = ["--filter", f"reference={IMAGE}", "--format", "{{.Repository}}:{{.Tag}}"]
    stages = ["--filter", "label=headwater.stage=build", "--filter", "dangling=true", "--format", "{{.ID}}"]
    for options, kept in ((ours, KEPT_IMAGES), (stages, 1)):
        shown = call(["podman", "images", "--sort", "created", *options], environment=environment)
        for name in shown.split()[kept:]:
            succeeds(["podman", "rmi", name], environment=environment)
