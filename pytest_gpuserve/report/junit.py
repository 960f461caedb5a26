"""What JUnit XML says of a case: flat properties, one value each, readable by any dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figures import flat

if TYPE_CHECKING:
    from ..record import Record

PREFIX = "gpuserve_"


def properties(record: Record) -> list[tuple[str, str]]:
    """For `item.user_properties`: `gpuserve_verdict`, `gpuserve_output_throughput`, ...; what is unknown is
    left out.

    Texts only: pytest-xdist carries nothing but builtins, and JUnit nothing but texts. Samples, logs and
    server_info are in the run's folder, not here.
    """
    return [
        (PREFIX + key, str(value).lower() if isinstance(value, bool) else str(value))
        for key, value in flat(record).items()
    ]
