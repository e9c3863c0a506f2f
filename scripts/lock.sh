#!/usr/bin/env bash
# Write requirements.lock from pyproject.toml: `make lock`.
#
# One file for Linux, macOS and Windows and for every Python from 3.11 on. Versions already in the
# file stay unless pyproject.toml asks for others; `scripts/lock.sh --upgrade` takes the newest.
# The CUDA packages are left out: torch itself asks for exactly the ones it was built with, and its
# CPU-only build for none.
set -euo pipefail
cd "$(dirname "$0")/.."

without=()
for package in cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc \
    nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse \
    nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx; do
    without+=(--no-emit-package "$package")
done

python3 -m venv .venv/uv
.venv/uv/bin/python -m pip install --quiet uv
.venv/uv/bin/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
    --quiet --custom-compile-command "make lock" "${without[@]}" --output-file requirements.lock "$@" >/dev/null
if grep -E '^(nvidia|cuda)-' requirements.lock; then
    echo "scripts/lock.sh: leave these out too: add them to the list in this file" >&2
    exit 1
fi
