"""Prints the kill matrix as the table of docs/robustness.md: `python tests/integration/kill_table.py`.

Seconds from the kill until no process of the launch is left. A cell that leaves something says so.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
import test_kill_matrix  # noqa: E402
import test_kill_pytest  # noqa: E402
from tabulate import tabulate  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOMENTS = ("starting", "serving", "stopping")


def show(seen: Any) -> str:
    wrong = [
        word
        for word, is_wrong in (
            (f"left {seen.survivors}", seen.survivors),
            ("lease held", not seen.lease_free),
            ("port taken", not seen.port_free),
        )
        if is_wrong
    ]
    return ", ".join(wrong) or f"{seen.over_s:.1f}"


def table(cells: Sequence[Any], look: Callable[[Any, Path], Any], together: int) -> str:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(together) as pool:

        def one(cell: Any) -> Any:
            place = Path(folder, str(cell), "run")
            place.parent.mkdir()
            if look is test_kill_matrix.run:
                place.mkdir()
            return look(cell, place)

        seen = dict(zip(cells, pool.map(one, cells), strict=True))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for cell, what in seen.items():
        found.setdefault((cell.victim, cell.signal.name), {})[cell.moment] = show(what)
    rows = [[*key, *(by_moment.get(m, "") for m in MOMENTS)] for key, by_moment in found.items()]
    return tabulate(rows, ["killed", "by", *MOMENTS], tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    print(table(test_kill_matrix.CELLS, test_kill_matrix.run, test_kill_matrix.TOGETHER), end="\n\n")
    print(table(test_kill_pytest.CELLS, test_kill_pytest.observe, test_kill_pytest.TOGETHER))
