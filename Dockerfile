# The extender and its webhooks with the predictor that ships:
#   docker build -t REGISTRY/precision-time:0.1.0 .
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
WORKDIR /src
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Without pip of its own, so that the image gets nothing to install with beyond its base.
RUN python -m venv --without-pip /opt/precision-time
ENV PATH=/opt/precision-time/bin:$PATH
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY precision_time precision_time
COPY predictor predictor
COPY profiles profiles
COPY k8s_extender k8s_extender
# `kubernetes,report,postgres` makes an image that can also write the capacity report.
ARG EXTRAS=kubernetes
RUN pip --python /opt/precision-time/bin/python install ".[${EXTRAS}]"

FROM python:${PYTHON}-slim-bookworm
COPY --from=build /opt/precision-time /opt/precision-time
ENV PATH=/opt/precision-time/bin:$PATH \
    PRECISION_TIME_HOME=/var/lib/precision-time \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 8443 9844
ENTRYPOINT ["precision-time"]
CMD ["k8s", "serve", "--config", "/etc/precision-time/config/config.yaml"]
