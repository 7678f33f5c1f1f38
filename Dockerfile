# A wheel in the first stage, a slim image that runs it without root in the second.
#
#   docker build -t pyjs-server .
#   docker run --rm -p 4222:4222 -p 8222:8222 -v pyjs-data:/data pyjs-server
#   docker run --rm -v $PWD/my.conf:/my.conf:ro pyjs-server -c /my.conf
FROM python:3.13-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels pyjs-server \
    && useradd --system --uid 10001 --home-dir /data pyjs \
    && install --directory --owner pyjs --group pyjs /data
USER pyjs
WORKDIR /data
VOLUME /data
EXPOSE 4222 8222
HEALTHCHECK --interval=10s --timeout=3s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8222/healthz', timeout=2)"]
ENTRYPOINT ["pyjs-server"]
CMD ["--addr", "0.0.0.0", "--port", "4222", "--http_port", "8222", "--jetstream", "--store_dir", "/data"]
