# Wheels in the first stage, a slim image that runs the server without root in the second.
#
#   docker build -t pyjs-server .
#   docker run --rm -p 4222:4222 -p 8222:8222 -v pyjs-data:/data pyjs-server
#   docker run --rm -v $PWD/my.conf:/my.conf:ro pyjs-server -c /my.conf
#
# The image has the consensus engine for clusters, and the name nats-server for charts and scripts that call it.
FROM python:3.13-slim AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cargo gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY raft ./raft
RUN pip wheel --no-cache-dir --wheel-dir /wheels . ./raft

FROM python:3.13-slim
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels pyjs-server pyjs-raft \
    && pyjs-server alias /usr/local/bin \
    && groupadd --system --gid 10001 pyjs \
    && useradd --system --uid 10001 --gid 10001 --home-dir /data pyjs \
    && install --directory --owner pyjs --group pyjs /data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 4222 6222 8222
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8222/healthz', timeout=2)"]
ENTRYPOINT ["pyjs-server"]
CMD ["--addr", "0.0.0.0", "--port", "4222", "--http_port", "8222", "--jetstream", "--store_dir", "/data"]
