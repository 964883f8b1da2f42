# A broker in a container. `make soak` builds this image and runs it (tests/packages/test_image.py);
# `make test` builds the wheel from the files that are copied below and runs the health check.
#
#   docker build -t nexo .
#   docker run --rm -v nexo-data:/var/lib/nexo nexo token create admin --allow '*:*' \
#       --data /var/lib/nexo                              # prints the first token, once
#   docker run -d --name nexo -v nexo-data:/var/lib/nexo -p 9324:9324 -p 9325:9325 nexo
#
# A token is needed because the broker listens on all addresses of the container. compose.yaml has
# a broker for your own machine that asks for none. Every setting is also a variable: -e
# NEXO_MEMORY_LIMIT=2GB. BASE may be any Debian with Python 3.11 or newer and its venv module.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /build
COPY requirements/base.txt requirements/build.txt requirements/
# The same locked dependencies as everywhere, checked by their hashes. Those of EXTRAS are not:
# --build-arg EXTRAS=postgresql
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
    && python3 -m venv /opt/nexo \
    && /opt/nexo/bin/pip install --no-cache-dir --require-hashes -r requirements/base.txt
COPY pyproject.toml README.md LICENSE ./
COPY scripts/long_description.py scripts/
COPY ops ops
COPY examples examples
COPY src src
ARG EXTRAS=
RUN /opt/build/bin/python -m hatchling build -t wheel -d dist \
    && wheel="$(echo dist/*.whl)" \
    && /opt/nexo/bin/pip install --no-cache-dir "${wheel}${EXTRAS:+[${EXTRAS}]}" \
    && /opt/nexo/bin/pip uninstall --yes --quiet pip

FROM ${BASE}
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/nexo --no-create-home \
        --shell /usr/sbin/nologin nexo \
    && install -d -o nexo -g nexo -m 0700 /var/lib/nexo
COPY --from=build /opt/nexo /opt/nexo
ENV PATH=/opt/nexo/bin:$PATH \
    NEXO_DATA=/var/lib/nexo \
    NEXO_HOST=0.0.0.0 \
    NEXO_ACCESS=required
USER nexo
WORKDIR /var/lib/nexo
VOLUME /var/lib/nexo
# HTTP with the console, the native protocol, JSON over UDP
EXPOSE 9324/tcp 9325/tcp 9326/udp
# /health is open to everybody and says 503 while the disk is full or failing.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD python3 -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:9324/health')"
STOPSIGNAL SIGTERM
ENTRYPOINT ["nexo"]
CMD ["serve"]
