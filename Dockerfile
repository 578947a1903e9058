# One image for nodes, the coordinator and all tools:  headwater node .., headwater coordinator .., headwater run ..
#
#   docker build -t headwater .                    (or buildah build, podman build; needs BASE with Python 3.11 or later)
#
# A folder wheels/ in the build context, if there is one, is all that dependencies are installed from: so an image can
# be built where the build cannot reach a package index. `headwater up --on containers` does that (docs/guide/running.md).
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
LABEL headwater.stage=build
# Dependencies first: they change far less often than the sources, and their layer is kept. The drivers of remote tables
# are among them, because a container has no pip to install them with later.
COPY pyproject.toml wheels* /dependencies/
RUN python3 -m venv /opt/headwater \
 && python3 -c "import tomllib; p = tomllib.load(open('/dependencies/pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['remote'], sep='\n')" \
        > /dependencies/requirements.txt \
 && if ls /dependencies/*.whl > /dev/null 2>&1; then from="--no-index --find-links /dependencies"; fi \
 && /opt/headwater/bin/python -m pip install --no-cache-dir --disable-pip-version-check $from \
        'setuptools>=68' wheel --requirement /dependencies/requirements.txt
COPY . /headwater
RUN cd /headwater && /opt/headwater/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --no-index --no-deps --no-build-isolation . \
 && /opt/headwater/bin/python -m pip uninstall --yes --quiet setuptools wheel pip

FROM ${BASE}
RUN groupadd --gid 10001 headwater \
 && useradd --uid 10001 --gid headwater --home-dir /data --no-create-home --shell /usr/sbin/nologin headwater \
 && install -d -o headwater -g headwater /data
COPY --from=build /opt/headwater /opt/headwater
ENV PATH=/opt/headwater/bin:$PATH PYTHONUNBUFFERED=1
USER headwater
WORKDIR /data
# Nodes and the coordinator answer on /health; start them with --http HOST:8080 (tools that end have no use for it).
EXPOSE 5000 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python3", "-m", "headwater.deploy.cluster.health"]
ENTRYPOINT ["headwater"]
CMD ["--help"]
