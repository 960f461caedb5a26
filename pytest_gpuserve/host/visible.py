"""Which GPUs `CUDA_VISIBLE_DEVICES` leaves visible, by CUDA's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def select(visible: str | None, uuids: Sequence[str]) -> tuple[list[int], str]:
    """Indices into `uuids` in the order given, and a note about what was not understood.

    None means all. Entries are indices or (beginnings of) UUIDs; as in CUDA, the first one that names no GPU
    hides itself and all after it. Indices count in the order of PCI buses, as NVML does; CUDA counts so only
    under `CUDA_DEVICE_ORDER=PCI_BUS_ID`, which makes a difference where products are mixed.
    """
    if visible is None:
        return list(range(len(uuids))), ""
    chosen: list[int] = []
    for entry in (part.strip() for part in visible.split(",")):
        index = _index(entry, uuids)
        if index is None:
            note = f"CUDA_VISIBLE_DEVICES={visible}: {entry!r} names no GPU" if entry else ""
            if not chosen and not note and uuids:
                note = "CUDA_VISIBLE_DEVICES hides all GPUs"
            return chosen, note
        if index in chosen:
            return [], f"CUDA_VISIBLE_DEVICES={visible} names a GPU twice, for which CUDA hides all"
        chosen.append(index)
    return chosen, ""


def _index(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    found = [i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None
