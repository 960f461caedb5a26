"""The workload of a stored figure: read as strictly as the rest of its file, and brought to one form."""

from __future__ import annotations

from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Union, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ..model import Lengths, Slo, Workload
from .match import NOT_MEASURED, identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..yaml_source import Source


class _Lengths(Lengths, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Slo(Slo, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


_STRICT: dict[str, tuple[Any, ...]] = {
    "input_tokens": (int, float, _Lengths),
    "output_tokens": (int, float, _Lengths),
    "slo": (_Slo,),
}


def stored_workload(source: Source, keys: Sequence[str | int]) -> dict[str, Any]:
    """The fields that decide what was measured, without those at their default, however they are written.

    Raises the file's error for a key that is none of them, and for a value of another type.
    """
    found = source.convert(tuple(keys), _type())
    plain: dict[str, Any] = msgspec.to_builtins(found)
    for name in ("input_tokens", "output_tokens"):
        if isinstance(mean := plain.get(name), int | float):
            plain[name] = msgspec.to_builtins(Lengths(mean=float(mean)))
    return identity(plain)


@cache
def _type() -> type[msgspec.Struct]:
    """A workload of which any field may be missing, and none null."""
    fields = []
    for field in msgspec.structs.fields(Workload):
        if field.name not in NOT_MEASURED:
            types = _STRICT.get(field.name) or get_args(field.type) or (field.type,)
            if not any(isinstance(one, type) for one in types):  # the values of a Literal
                types = (field.type,)
            kinds = tuple(one for one in types if one is not NoneType)
            fields.append((field.name, Union[(*kinds, UnsetType)], UNSET))
    return msgspec.defstruct("StoredWorkload", fields, frozen=True, kw_only=True, forbid_unknown_fields=True)
