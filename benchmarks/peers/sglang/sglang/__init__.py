"""Stands in for sglang's own `__init__` and one module of it, which import torch and CUDA kernels.

The client itself (`sglang.benchmark.serving`) is the unmodified code of the wheel unpacked at $PEER_SGLANG.
"""

import os
import sys
import types

__path__ = [os.environ["PEER_SGLANG"] + "/sglang"]
__version__ = "0.5.23"

_utils = types.ModuleType("sglang.srt.disaggregation.utils")
_utils.FAKE_BOOTSTRAP_HOST = "2.2.2.2"
_package = types.ModuleType("sglang.srt.disaggregation")
_package.__path__ = []
_package.utils = _utils
sys.modules["sglang.srt.disaggregation"] = _package
sys.modules["sglang.srt.disaggregation.utils"] = _utils
