"""What loading the plugin costs every pytest run, and what collecting 1,000 cases costs.

    python benchmarks/startup.py [--runs 15]

Both are measured as whole processes, in turn with a peer in the same run: bare pytest without this plugin, and a Python
test module with as many parametrized cases. Exits 1 when a bar is missed: 50 ms for loading, 2 s for collecting.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOAD_BAR_S = 0.050
COLLECT_BAR_S = 2.0
CASES = 1000

SUITE_HEAD = """\
suite: many
requires: {gpus: 8}
server: {engine: sglang, model: m, args: {tp-size: 8}}
workloads:
  decode: {concurrency: 1, requests: 4, input_tokens: 128, output_tokens: 512}
configs:
"""
MODULE = """\
import pytest
@pytest.mark.parametrize("case", [f"config-{n}-decode" for n in range(%d)])
def test_serving(case): pass
"""


def seconds(folder: Path, *arguments: str) -> float:
    """Wall time of one `python -m pytest` in `folder`, with all modules compiled before, as pip leaves them."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environ | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")},
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def pairs(runs: int, folder: Path, ours: list[str], peer: list[str]) -> tuple[float, float, float]:
    """Medians of ours and the peer's, measured in turn, and the median of the differences."""
    both = [(seconds(folder, *ours), seconds(folder, *peer)) for _ in range(runs)]
    mine, theirs = zip(*both, strict=True)
    return (
        statistics.median(mine),
        statistics.median(theirs),
        statistics.median(a - b for a, b in both),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "empty").mkdir()
        (folder / "suites").mkdir()
        configs = "".join(f"  - id: config-{n}\n    args: {{page-size: {n + 1}}}\n" for n in range(CASES))
        (folder / "suites" / "many.yaml").write_text(SUITE_HEAD + configs)
        (folder / "test_many.py").write_text(MODULE % CASES)
        for warm in (["empty"], ["suites"], ["test_many.py"]):
            seconds(folder, *warm)  # compiles, and warms the caches of the file system
        with_us, without, cost = pairs(runs, folder, ["empty"], ["empty", "-p", "no:gpuserve"])
        many, peer, _ = pairs(max(3, runs // 3), folder, ["suites"], ["test_many.py"])
    print(
        f"loading      {with_us:.3f} s with the plugin, {without:.3f} s without: {cost * 1000:+.0f} ms (bar 50 ms)"
    )
    print(
        f"collecting   {many:.2f} s for {CASES} cases of a suite, {peer:.2f} s for as many in Python: "
        f"{many / peer:.2f}x (bar {COLLECT_BAR_S:.0f} s)"
    )
    return int(cost > LOAD_BAR_S or many > COLLECT_BAR_S)


if __name__ == "__main__":
    sys.exit(main())
