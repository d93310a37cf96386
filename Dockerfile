# syntax=docker/dockerfile:1
# The image of every tidegate process: `docker build -t tidegate .`; docker-compose.yml builds it by itself.

# ---- build: the toolchain of rust-toolchain.toml, on the Debian that the image runs on
FROM rust:1.95.0-slim-trixie AS build

RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        build-essential \
        libclang-dev \
        libssl-dev \
        pkg-config \
        zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY . .

# Downloaded crates and build products outlive this layer: after a change of tidegate, RocksDB and librdkafka are not compiled
# again. What is in a cache is not in the image, so the binary is copied out of it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package tidegate \
    && cp target/release/tidegate /usr/local/bin/tidegate

# ---- run: the binary, what it links to, and the certificates of public authorities
FROM debian:trixie-slim AS run

RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates \
        libssl3t64 \
        libstdc++6 \
        zlib1g \
    && rm -rf /var/lib/apt/lists/*

# A number, so that a platform that asks for "not root" can see that it is. The folder is the user's: a volume that is mounted
# there for the first time takes its owner over.
RUN groupadd --gid 10001 tidegate \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/tidegate --shell /usr/sbin/nologin tidegate \
    && install -d -m 0755 /etc/tidegate \
    && install -d -o tidegate -g tidegate -m 0750 /var/lib/tidegate

COPY --from=build /usr/local/bin/tidegate /usr/local/bin/tidegate

USER 10001:10001
WORKDIR /var/lib/tidegate
# Mount your configuration here.
ENV TIDEGATE_CONFIG=/etc/tidegate/tidegate.toml
# Metrics and health, once observe.listen is an address that others reach.
EXPOSE 9600
STOPSIGNAL SIGTERM
ENTRYPOINT ["tidegate"]
CMD ["--help"]
