# syntax=docker/dockerfile:1
# poolrt's image with a compiler. PoCL links the OpenCL kernels that it creates with gcc; kernels from the cache need none.
#
#   docker build -f docker/Dockerfile -t poolrt .
#   docker build -f docker/Dockerfile.opencl -t poolrt-opencl docker

ARG POOLRT=poolrt

FROM ${POOLRT}
USER 0
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER 1000:1000
