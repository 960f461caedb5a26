#!/usr/bin/env bash
# install.sh FOLDER: a virtual environment with real SGLang 0.5.23 that serves small models on the CPU.
# Python 3.11, about three minutes, 2.7 GB. PyPI's SGLang is built for CUDA: its kernels cannot be imported here, and
# standins/ takes their place. Scheduler, HTTP server, flags, logs, metrics and child processes are SGLang's own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"${PYTHON:-python3.11}" -m venv "$1"
pip() { "$1/bin/python" -m pip install -q --disable-pip-version-check "${@:2}"; }
pip "$1" torch==2.13.0
pip "$1" -r "$here/requirements.txt"
# Without what they depend on, which is built for CUDA.
pip "$1" --no-deps sglang==0.5.23 xgrammar==0.2.7 apache-tvm-ffi==0.1.11 triton==3.9.0
echo "run the tests with: GPUSERVE_SGLANG_CPU=$1 python -m pytest tests/engines -m sglang_cpu"
