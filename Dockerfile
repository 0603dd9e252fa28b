# The images of graphpod. `make images` builds them with buildah on a base made by mmdebstrap; any Debian 12 image
# with python3 and ca-certificates, tagged as the FROM line says, serves as well.
FROM graphpod.dev/base:bookworm AS base
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin graphpod
ENV HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# Only the stages that install have pip. No compiler anywhere: every library comes as a wheel.
FROM graphpod.dev/base:bookworm AS installer
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip > /dev/null
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
ENV SITE=/usr/local/lib/python3.11/dist-packages

FROM installer AS operator-libraries
COPY locks/operator.txt /locks/
RUN python3 -m pip install --quiet --no-compile --no-deps --require-hashes --target $SITE -r /locks/operator.txt
# The operator speaks through kubernetes.aio; the sync client beside it is half of that package. Its models stay,
# since kopf looks at a few of them, but uncompiled.
RUN rm -rf $SITE/bin $SITE/kubernetes/client/api \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/kubernetes/client/models/' $SITE

FROM installer AS runtime-libraries
# PyTorch's CPU index, used only where no folder with the wheel is mounted at /wheels.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY locks/runtime-cpu.txt /locks/
RUN if [ -d /wheels ]; then from="--find-links /wheels"; else from="--extra-index-url $TORCH_INDEX"; fi \
 && python3 -m pip install --quiet --no-compile --no-deps --require-hashes --target $SITE $from -r /locks/runtime-cpu.txt
# Headers and static libraries of torch serve a compiler, and there is none.
RUN rm -rf $SITE/bin $SITE/torch/include $SITE/torch/share $SITE/torch/test $SITE/torch/lib/*.a \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/torch/testing/_internal/' $SITE

FROM base AS operator
COPY --from=operator-libraries /usr/local/lib/python3.11/dist-packages /usr/local/lib/python3.11/dist-packages
COPY policy/graphpod_policy /graphpod/graphpod_policy
COPY operator/graphpod_operator /graphpod/graphpod_operator
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /graphpod \
 && printf '#!/usr/bin/python3\nimport sys\n\nfrom graphpod_operator.cli import main\n\nsys.exit(main())\n' > /usr/local/bin/graphpod \
 && chmod 755 /usr/local/bin/graphpod
ENV PYTHONPATH=/graphpod
USER 65532:65532
ENTRYPOINT ["graphpod"]
CMD ["operator", "run"]

FROM base AS runtime
COPY --from=runtime-libraries /usr/local/lib/python3.11/dist-packages /usr/local/lib/python3.11/dist-packages
COPY policy/graphpod_policy /graphpod/graphpod_policy
COPY runtime/graphpod_runtime /graphpod/graphpod_runtime
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /graphpod \
 && printf '#!/usr/bin/python3\nimport sys\n\nfrom graphpod_runtime.cli import main\n\nsys.exit(main())\n' > /usr/local/bin/graphpod-engine \
 && chmod 755 /usr/local/bin/graphpod-engine
ENV PYTHONPATH=/graphpod OMP_WAIT_POLICY=PASSIVE
USER 65532:65532
ENTRYPOINT ["graphpod-engine"]

# A model that travels as an image: its container copies /weights/<model> to a volume at /target. The folder appears
# there under its name only when it is whole, and a second run changes nothing.
FROM base AS demo-weights
ARG MODEL=model
COPY --from=weights / /weights/${MODEL}/
USER 65532:65532
ENTRYPOINT ["/bin/sh", "-euc", "for from in /weights/*; do to=/target/$(basename $from); if diff -rq $from $to > /dev/null 2>&1; then echo $to is there; continue; fi; rm -rf $to.partial; cp -r $from $to.partial; sync; rm -rf $to; mv $to.partial $to; echo $to copied; done"]

# Stand-ins for tests: `python3 -m stubs.NAME`.
FROM base AS stubs
COPY stubs /stubs/stubs
ENV PYTHONPATH=/stubs
USER 65532:65532
ENTRYPOINT ["python3", "-m"]
