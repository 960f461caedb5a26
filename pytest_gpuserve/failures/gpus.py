"""A GPU as somebody names it: a compute capability, or a product that stands for its own."""

from __future__ import annotations

import re

from msgspec import Struct

from ..errors import InputError

CAPABILITIES = {
    "A100": "8.0",
    "A10": "8.6",
    "A40": "8.6",
    "RTX 3090": "8.6",
    "L4": "8.9",
    "L40": "8.9",
    "L40S": "8.9",
    "RTX 4090": "8.9",
    "H20": "9.0",
    "H100": "9.0",
    "H200": "9.0",
    "B200": "10.0",
    "GB200": "10.0",
    "B300": "10.3",
    "GB300": "10.3",
    "RTX 5070": "12.0",
    "RTX 5080": "12.0",
    "RTX 5090": "12.0",
    "RTX PRO 5000": "12.0",
    "RTX PRO 6000": "12.0",
    "GB10": "12.1",
}
"""Compute capability by product, as `nvidia-smi --query-gpu=name,compute_cap` tells it."""

_NUMBER = re.compile(r"(?i)(?:compute capability )?(?:sm ?(\d+)(\d)[af]?|(\d+)\.(\d+))")
_BEFORE = re.compile(r"(?i)^(?:nvidia|geforce|tesla) ")
_AFTER = r"(?: (?:Ti|D|SUPER|SXM\d?|PCIe|NVL|HBM\d\w?|\d+ ?GB|Blackwell|Max Q|Laptop|GPU|Server|Workstation|Edition))*"
"""What a driver appends to a product's name, and what changes nothing of its capability."""


class Gpu(Struct, frozen=True):
    """What is known of a GPU by what somebody called it."""

    capability: str
    """Such as `12.0`."""
    product: str | None = None
    """As it was given; None where only the capability was."""


def gpu(written: str) -> Gpu:
    """`12.0`, `sm120`, or a product such as `NVIDIA H200`. Raises InputError for what is neither."""
    from ..yaml_source import did_you_mean

    words = " ".join(re.split(r"[\s_-]+", written.strip()))
    if (number := _NUMBER.fullmatch(words)) is not None:
        return Gpu(".".join(part for part in number.groups() if part is not None))
    name = words
    while (shorter := _BEFORE.sub("", name)) != name:
        name = shorter
    for product, capability in CAPABILITIES.items():
        if re.fullmatch(f"(?i){re.escape(product)}{_AFTER}", name):
            return Gpu(capability, words)
    near = did_you_mean(name, CAPABILITIES)
    raise InputError(
        f"no GPU {written!r} is known; write its compute capability, such as 12.0 or sm120, or one of "
        f"{', '.join(CAPABILITIES)}{near}"
    )
