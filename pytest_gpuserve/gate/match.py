"""What must be the same for a run to be compared with a baseline, and what is only shown when it differs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from ..model import Workload
from ..record import METRIC_DEFINITION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..model import Case, EngineBuild, Host
    from ..record import Launch
    from .baseline import Baseline

NOT_MEASURED = frozenset({"name", "rounds", "stall", "prompt_tolerance", "busy_machine"})
"""Fields of a workload that change how sure or how strict a round is, not what it measures."""


PASSING = ("CUDA_VISIBLE_DEVICES", "*_CACHE", "*_CACHE_DIR", "*_HOME", "*_TOKEN")
"""Variables, as shell patterns, that say where a run happened to find things: neither stored nor compared."""


def lasting(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what an engine does in the same way every time, sorted."""
    return {
        name: value
        for name, value in sorted(env.items())
        if not any(fnmatchcase(name, pattern) for pattern in PASSING)
    }


def workload_identity(workload: Workload) -> dict[str, Any]:
    """The fields of a workload that decide what is measured, without those that stand at their default."""
    return identity(msgspec.to_builtins(workload))


def identity(plain: dict[str, Any]) -> dict[str, Any]:
    """The same for a workload's fields as plain data, of which some may be missing."""
    default: dict[str, Any] = msgspec.to_builtins(_BARE)
    return {key: _trim(value) for key, value in plain.items() if _matters(key, value, default)}


_BARE = Workload(name="", input_tokens=msgspec.UNSET, output_tokens=msgspec.UNSET)  # type: ignore[arg-type]


def _matters(key: str, value: Any, default: dict[str, Any]) -> bool:
    return key not in NOT_MEASURED and value != default.get(key, msgspec.UNSET)


def _trim(value: Any) -> Any:
    """A fixed length is written as its number."""
    if isinstance(value, dict) and value.get("kind") == "fixed":
        mean = value["mean"]
        return int(mean) if float(mean).is_integer() else mean
    return value


def differences(case: Case, host: Host, baseline: Baseline, *, model: bool = True) -> list[str]:
    """What forbids the comparison, each as `<what>: <here>, the baseline's <there>`; empty when nothing does.

    `model=False` for a partner, which may serve another model.
    """
    pairs: list[tuple[str, Any, Any]] = [
        ("GPU product", host.product, baseline.host.product),
        ("number of GPUs", host.count, baseline.host.count),
        ("topology", host.topology, baseline.host.topology),
        ("model", str(case.config.model), baseline.model if model else None),
        ("metric definition", METRIC_DEFINITION, baseline.definition),
    ]
    if baseline.workload is not None:
        ignored = set() if "goodput" in case.config.gate.metrics else {"slo"}
        both = _both(workload_identity(case.workload), baseline.workload)
        pairs += [(f"workload {key}", here, there) for key, here, there in both if key not in ignored]
        return [_different(what, a, b) for what, a, b in pairs if a != b and not _unknown(what, b)]
    return [_different(what, a, b) for what, a, b in pairs if b is not None and a != b]


def _unknown(what: str, there: Any) -> bool:
    """A product or model that a reported figure does not tell; a workload's missing field is its default."""
    return there is None and not what.startswith("workload")


def changes(
    case: Case, host: Host, engine: EngineBuild | None, launches: Iterable[Launch], baseline: Baseline
) -> list[str]:
    """What else is not as it was, because that is what is being tested: engine, driver, power limit,
    arguments, environment."""
    measured = baseline.measured
    if measured is None:
        return []
    env = lasting(next((launch.env for launch in launches), {}))
    pairs: list[tuple[str, Any, Any]] = [
        ("driver", host.driver or None, measured.driver or None),  # a host without GPUs has none
        ("power limit (W)", host.power_limit_w, measured.power_limit_w),
        *((f"--{name}", a, b) for name, a, b in _both(case.config.args, measured.args)),
        *_both(env, measured.env),
    ]
    if engine is not None:
        pairs[:0] = [
            ("engine", engine.name, measured.engine),
            ("engine version", engine.version, measured.version),
            ("engine build", engine.build, measured.build),
        ]
    return [_different(what, here, there) for what, here, there in pairs if here != there]


def _both(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, here.get(name), there.get(name)) for name in sorted({*here, *there})]


def _different(what: str, here: Any, there: Any) -> str:
    def told(value: Any) -> str:
        return "unset" if value is None else str(value)

    return f"{what}: {told(here)}, the baseline's {told(there)}"
