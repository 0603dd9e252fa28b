# The images of graphpod. `make images` builds them with buildah on a base made by mmdebstrap; any Debian 12 image
# with python3 and ca-certificates, tagged as the FROM line says, serves as well.
#
# The same sources give the same bytes: wheels are pinned by hash, Python compiles one file after the other with a fixed
# hash seed, and what builds it sets every time to SOURCE_DATE_EPOCH (buildah: --timestamp). A stage that lists what the
# image holds (testbed/sbom.py) comes before our own code, so that a change of code rebuilds only the last layers.
ARG VERSION=0.1.0
ARG SOURCE_DATE_EPOCH=1795219200
# Which build of torch the image `runtime` has: cpu, or cuda where no index offers the build without CUDA.
ARG TORCH=cpu

FROM graphpod.dev/base:bookworm AS base
RUN echo 'graphpod:x:65532:65532::/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'graphpod:x:65532:' >> /etc/group
ENV HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# Only the stages that install have pip. Nothing is built from source: every library comes as a wheel.
FROM graphpod.dev/base:bookworm AS installer
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip > /dev/null
# Where testbed/images/build.py puts what the machine's own pip is configured with.
ENV PIP_CONFIG_FILE=/mnt/pip.conf
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
ENV SITE=/usr/local/lib/python3.11/dist-packages PYTHONHASHSEED=0
ENV INSTALL="python3 -m pip install --quiet --no-compile --no-deps --require-hashes --report /report.json --target /usr/local/lib/python3.11/dist-packages"
ENV COMPILE="python3 -m compileall -q --invalidation-mode unchecked-hash"

FROM installer AS operator-libraries
COPY locks/operator.txt /locks/
RUN $INSTALL -r /locks/operator.txt
# The operator speaks through kubernetes.aio; the sync client is the other half of that package. Its models stay,
# since kopf looks at a few of them, but uncompiled.
RUN rm -rf $SITE/bin $SITE/kubernetes/client/api && $COMPILE -x '/kubernetes/client/models/' $SITE

FROM installer AS cpu-libraries
# PyTorch's CPU index, asked where no wheel is mounted at /mnt/wheels. Empty: a configured index has it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY locks/runtime-cpu.txt /locks/
RUN if [ -d /mnt/wheels ]; then from="--find-links /mnt/wheels"; elif [ -n "$TORCH_INDEX" ]; then from="--extra-index-url $TORCH_INDEX"; fi \
 && $INSTALL $from -r /locks/runtime-cpu.txt
# Headers and static libraries of torch serve a compiler, and there is none.
RUN rm -rf $SITE/bin $SITE/torch/include $SITE/torch/share $SITE/torch/test $SITE/torch/lib/*.a \
 && $COMPILE -x '/torch/testing/_internal/' $SITE

# The public index serves torch for CUDA, with NVIDIA's libraries as wheels. One step, since it is 6 GB.
FROM installer AS cuda-libraries
COPY locks/runtime-cuda.txt /locks/
RUN $INSTALL -r /locks/runtime-cuda.txt \
 && rm -rf $SITE/bin $SITE/torch/include $SITE/torch/share $SITE/torch/test \
 && find $SITE -name '*.a' -delete \
 && $COMPILE -x '/torch/testing/_internal/|/flashinfer/data/' $SITE

FROM ${TORCH}-libraries AS runtime-libraries

FROM base AS operator-root
COPY --from=operator-libraries /usr/local/lib/python3.11/dist-packages /usr/local/lib/python3.11/dist-packages
RUN printf '#!/usr/bin/python3\nimport sys\n\nfrom graphpod_operator.cli import main\n\nsys.exit(main())\n' > /usr/local/bin/graphpod \
 && chmod 755 /usr/local/bin/graphpod
ENV PYTHONPATH=/graphpod
ENTRYPOINT ["graphpod"]
CMD ["operator", "run"]

FROM operator-root AS operator-sbom
ARG VERSION
ARG SOURCE_DATE_EPOCH
COPY testbed/sbom.py /sbom/
COPY --from=operator-libraries /report.json /sbom/
RUN python3 /sbom/sbom.py operator $VERSION --own graphpod_policy graphpod_operator --report /sbom/report.json > /sbom/sbom.cdx.json

FROM operator-root AS operator
COPY --from=operator-sbom /sbom/sbom.cdx.json /usr/share/graphpod/
COPY policy/graphpod_policy /graphpod/graphpod_policy
COPY operator/graphpod_operator /graphpod/graphpod_operator
RUN PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash /graphpod
USER 65532:65532

FROM base AS runtime-root
COPY --from=runtime-libraries /usr/local/lib/python3.11/dist-packages /usr/local/lib/python3.11/dist-packages
RUN printf '#!/usr/bin/python3\nimport sys\n\nfrom graphpod_runtime.cli import main\n\nsys.exit(main())\n' > /usr/local/bin/graphpod-engine \
 && printf '#!/usr/bin/python3\nfrom graphpod_sources.cli import run\n\nrun()\n' > /usr/local/bin/graphpod-fetch \
 && chmod 755 /usr/local/bin/graphpod-engine /usr/local/bin/graphpod-fetch
ENV PYTHONPATH=/graphpod OMP_WAIT_POLICY=PASSIVE
ENTRYPOINT ["graphpod-engine"]

FROM runtime-root AS runtime-sbom
ARG VERSION
ARG SOURCE_DATE_EPOCH
COPY testbed/sbom.py /sbom/
COPY --from=runtime-libraries /report.json /sbom/
RUN python3 /sbom/sbom.py runtime $VERSION --own graphpod_policy graphpod_runtime graphpod_sources --report /sbom/report.json > /sbom/sbom.cdx.json

FROM runtime-root AS runtime
COPY --from=runtime-sbom /sbom/sbom.cdx.json /usr/share/graphpod/
COPY policy/graphpod_policy /graphpod/graphpod_policy
COPY runtime/graphpod_runtime /graphpod/graphpod_runtime
COPY sources/graphpod_sources /graphpod/graphpod_sources
RUN PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash /graphpod
USER 65532:65532

# gcc stays: Triton compiles the launcher of each kernel where it runs. Its caches are under /tmp, which is all that may be
# writable; a pod gives it more room by mounting volumes and naming them in these variables.
FROM base AS cuda-root
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev libpython3.11-dev > /dev/null \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache /var/log/apt /var/log/*.log /var/lib/dpkg/*-old
COPY --from=cuda-libraries /usr/local/lib/python3.11/dist-packages /usr/local/lib/python3.11/dist-packages
# flashinfer's kernels built ahead of time; an empty folder where none are given, and then flashinfer cannot be used.
COPY --from=kernels / /usr/local/lib/python3.11/dist-packages/flashinfer/data/aot/
RUN printf '#!/usr/bin/python3\nimport sys\n\nfrom graphpod_runtime.cli import main\n\nsys.exit(main())\n' > /usr/local/bin/graphpod-engine \
 && printf '#!/usr/bin/python3\nfrom graphpod_sources.cli import run\n\nrun()\n' > /usr/local/bin/graphpod-fetch \
 && chmod 755 /usr/local/bin/graphpod-engine /usr/local/bin/graphpod-fetch
ENV PYTHONPATH=/graphpod OMP_WAIT_POLICY=PASSIVE CC=gcc
ENV TRITON_CACHE_DIR=/tmp/triton TORCHINDUCTOR_CACHE_DIR=/tmp/inductor FLASHINFER_WORKSPACE_BASE=/tmp FLASHINFER_DISABLE_JIT=1
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["graphpod-engine"]

FROM cuda-root AS cuda-sbom
ARG VERSION
ARG SOURCE_DATE_EPOCH
COPY testbed/sbom.py /sbom/
COPY --from=cuda-libraries /report.json /sbom/
RUN python3 /sbom/sbom.py runtime-cuda $VERSION --own graphpod_policy graphpod_runtime graphpod_sources --report /sbom/report.json > /sbom/sbom.cdx.json

FROM cuda-root AS runtime-cuda
COPY --from=cuda-sbom /sbom/sbom.cdx.json /usr/share/graphpod/
COPY policy/graphpod_policy /graphpod/graphpod_policy
COPY runtime/graphpod_runtime /graphpod/graphpod_runtime
COPY sources/graphpod_sources /graphpod/graphpod_sources
RUN PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash /graphpod
USER 65532:65532

FROM base AS base-sbom
ARG VERSION
ARG SOURCE_DATE_EPOCH
ARG NAME=stubs
COPY testbed/sbom.py /sbom/
RUN python3 /sbom/sbom.py $NAME $VERSION > /sbom/sbom.cdx.json

# A model that travels as an image: its container copies /weights/<model> to a volume at /target. The folder appears
# there under its name only when it is whole, and a second run changes nothing.
FROM base AS demo-weights
ARG MODEL=model
COPY --from=base-sbom /sbom/sbom.cdx.json /usr/share/graphpod/
COPY --from=weights / /weights/${MODEL}/
USER 65532:65532
ENTRYPOINT ["/bin/sh", "-euc", "for from in /weights/*; do to=/target/$(basename $from); if diff -rq $from $to > /dev/null 2>&1; then echo $to is there; continue; fi; rm -rf $to.partial; cp -r $from $to.partial; sync; rm -rf $to; mv $to.partial $to; echo $to copied; done"]

# Stand-ins for tests: `python3 -m stubs.NAME`.
FROM base AS stubs
COPY --from=base-sbom /sbom/sbom.cdx.json /usr/share/graphpod/
COPY stubs /stubs/stubs
# The operator starts the engine by this name, so that the image stands in for the engine's.
RUN printf '#!/bin/sh\nexec python3 -m stubs.engine "$@"\n' > /usr/local/bin/graphpod-engine \
 && chmod 755 /usr/local/bin/graphpod-engine
ENV PYTHONPATH=/stubs
USER 65532:65532
ENTRYPOINT ["python3", "-m"]
