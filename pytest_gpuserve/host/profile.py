"""Names for kinds of machines: the folder of their baselines.

Two machines share a profile when figures of one say something about the other: same GPU product, same count.
What the marketing name adds without changing the silicon, its memory or its power is left out; what separates
products that share a chip (NVL, PCIe, SXM, Max-Q, memory sizes, MIG slices) stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CPU = "cpu"
"""Profile of a machine without GPUs."""

_NOISE = re.compile(
    r"\b(nvidia|geforce|tesla|quadro|graphics|generation|(server|workstation) edition)\b", re.IGNORECASE
)


def profile_name(products: str | Sequence[str], count: int) -> str:
    """`NVIDIA H100 NVL`, 1 -> `h100-nvl-x1`; several different products are joined by `-and-`.

    Server and Workstation Edition are one profile: they differ in cooling, not in chip, memory or board power
    (the 300 W Max-Q keeps its name).
    """
    if count == 0:
        return CPU
    names = [products] if isinstance(products, str) else sorted(set(products))
    return f"{'-and-'.join(slug(name) for name in names)}-x{count}"


def slug(product: str) -> str:
    """A product's name as a part of a folder name."""
    plain = _NOISE.sub(" ", product)
    return re.sub(r"[^a-z0-9.]+", "-", plain.lower()).strip("-.") or "unknown"
