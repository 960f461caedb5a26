"""One config of a suite: the suite's `server` with what the config sets, changes and removes."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..model import PHASES, ActiveIf, Args, Config, Gate, ModelRef, Probe, Requires
from ..written import METRICS, DeadEndSpec, dead_end, listed, requires
from ..yaml_values import environment, pattern, seconds, share, variable
from .spec import ConfigSpec, GateSpec, KnownDeadEnd, ProbeSpec, ServerSpec, SuiteSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model import DeadEnd
    from ..yaml_source import Source
    from ..yaml_types import Keys

DEMANDS = ("record", "sane", "same")
_FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Defaults(Struct, frozen=True, kw_only=True):
    """What configs inherit from the suite, checked once."""

    server: ServerSpec
    args: Args
    env: dict[str, str]
    timeouts: dict[str, float]
    requires: Requires | None
    markers: tuple[str, ...]
    tolerance: float
    gate: Gate
    probe: Probe | None


def build_defaults(source: Source, spec: SuiteSpec) -> Defaults:
    """The suite's part that all configs share."""
    server = spec.server
    tolerance = Gate().tolerance
    if spec.tolerance is not None:
        tolerance = share(source, ("tolerance",), spec.tolerance)
    return Defaults(
        server=server,
        args=_merged(source, ("server", "args"), {}, _checked_args(source, ("server", "args"), server.args)),
        env=_merged(source, ("server", "env"), {}, environment(source, ("server", "env"), server.env)),
        timeouts=_timeouts(source, ("server", "timeouts"), server),
        requires=requires(source, ("requires",), spec.requires) if spec.requires else None,
        markers=tuple(spec.markers),
        tolerance=tolerance,
        gate=_gate(source, ("gate",), spec.gate, Gate(tolerance=tolerance)),
        probe=_probe(source, ("probe",), spec.probe, None),
    )


def build_config(
    source: Source, index: int, spec: ConfigSpec, defaults: Defaults, workloads: Mapping[str, tuple[str, ...]]
) -> Config:
    """A config, complete; what it says of other configs and of the registry is checked by the caller."""
    keys: Keys = ("configs", index)
    server = defaults.server
    engine = spec.engine or server.engine
    model = spec.model or server.model
    if not engine:
        raise source.error(keys, "no engine; name it in server or here")
    if not model:
        raise source.error(keys, "no model; name it in server or here")
    # Another engine has other flags: nothing that is written for one is passed to the other.
    foreign = server.engine is not None and engine != server.engine
    args = _checked_args(source, (*keys, "args"), spec.args)
    env = environment(source, (*keys, "env"), spec.env)
    merged_env = _merged(source, (*keys, "env"), {} if foreign else defaults.env, env)
    probe = _probe(source, (*keys, "probe"), spec.probe, defaults.probe)
    xfail, known = _dead_end(source, keys, spec, probe)
    return Config(
        id=spec.id,
        place=source.place(*keys),
        engine=engine,
        model=_model(source, keys if spec.model else ("server",), model),
        args=_merged(source, (*keys, "args"), {} if foreign else defaults.args, args),
        extra_args=(*(() if foreign else server.extra_args), *spec.extra_args),
        env=merged_env,
        env_from=_env_from(source, keys, server, spec, merged_env),
        own_args=frozenset(args),
        own_env=frozenset(env) | frozenset(spec.env_from),
        requires=_requires(source, keys, spec, defaults, engine),
        timeouts=defaults.timeouts | _timeouts(source, (*keys, "timeouts"), spec),
        python=spec.python or (None if foreign else server.python),
        markers=tuple(dict.fromkeys((*defaults.markers, *spec.markers))),
        compare_to=spec.compare_to,
        gate=_gate(source, (*keys, "gate"), spec.gate, defaults.gate),
        active_if=(
            ActiveIf(log=pattern(source, (*keys, "active_if", "log"), spec.active_if.log))
            if spec.active_if
            else None
        ),
        probe=probe,
        dead_end=xfail,
        known=known,
        workloads=_workload_names(source, (*keys, "workloads"), spec.workloads, workloads),
    )


def _checked_args(source: Source, keys: Keys, args: dict[str, Any]) -> dict[str, Any]:
    for flag, value in args.items():
        at = (*keys, flag)
        if flag.startswith("-"):
            raise source.error(at, f"flags are written without the dashes: {flag.lstrip('-')}")
        if not _FLAG.fullmatch(flag):
            raise source.error(at, f"{flag!r} is no flag; a value stands after a colon")
        for scalar in value if isinstance(value, list) else [value]:
            if isinstance(scalar, float) and not math.isfinite(scalar):
                raise source.error(at, f"{scalar} cannot be passed")
            if isinstance(value, list) and not isinstance(scalar, str | int | float | bool):
                raise source.error(at, "a list is passed as `--key a b` and holds numbers and text alone")
    return args


def _merged(
    source: Source, keys: Keys, inherited: Mapping[str, Any], own: Mapping[str, Any]
) -> dict[str, Any]:
    """Inherited values, then own ones; null removes."""
    merged = dict(inherited)
    for key, value in own.items():
        if value is not None:
            merged[key] = value
        elif merged.pop(key, None) is None:
            hint = "write true for a flag without a value" if keys[-1] == "args" else 'write ""'
            raise source.error(
                (*keys, key), f"null removes what is inherited, and nothing is; {hint}", near=(key, inherited)
            )
    return merged


def _model(source: Source, keys: Keys, written: Any) -> ModelRef:
    model = (
        ModelRef(id=written)
        if isinstance(written, str)
        else ModelRef(id=written.id, revision=written.revision)
    )
    if not model.id.strip():
        raise source.error((*keys, "model"), "an empty name")
    return model


def _env_from(
    source: Source, keys: Keys, server: ServerSpec, spec: ConfigSpec, env: Mapping[str, str]
) -> tuple[str, ...]:
    for where, names in ((("server",), server.env_from), (keys, spec.env_from)):
        for i, name in enumerate(names):
            at = (*where, "env_from", i)
            variable(source, at, name)
            if name in env:
                raise source.error(at, f"{name} is set in env as well; give one of the two")
    return tuple(dict.fromkeys((*server.env_from, *spec.env_from)))


def _timeouts(source: Source, keys: Keys, spec: ServerSpec) -> dict[str, float]:
    limits: dict[str, float] = {}
    for phase, written in spec.timeouts.items():
        if phase not in PHASES:
            raise source.error((*keys, phase), "no such phase", near=(phase, PHASES))
        limits[phase] = seconds(source, (*keys, phase), written, zero=phase == "shutdown")
    return limits


def _requires(
    source: Source, keys: Keys, spec: ConfigSpec, defaults: Defaults, engine: str
) -> tuple[Requires, ...]:
    from packaging.requirements import Requirement

    own = requires(source, (*keys, "requires"), spec.requires) if spec.requires else None
    found: list[Requires] = []
    for where, demand in ((("requires",), defaults.requires), ((*keys, "requires"), own)):
        if demand is None:
            continue
        for text in demand.engine:
            if (name := Requirement(text).name) != engine:
                raise source.error((*where, "engine"), f"is about {name}, and {spec.id} starts {engine}")
        found.append(demand)
    return tuple(found)


def _gate(source: Source, keys: Keys, form: str | list[str] | GateSpec | None, inherited: Gate) -> Gate:
    if form is None:
        return inherited
    if form == "none":
        return Gate(metrics=(), tolerance=inherited.tolerance, explicit=True)
    tolerance = inherited.tolerance
    metrics: str | list[str] | None
    if isinstance(form, GateSpec):
        metrics, keys_of_metrics = form.metrics, (*keys, "metrics")
        if form.tolerance is not None:
            tolerance = share(source, (*keys, "tolerance"), form.tolerance)
        if metrics is None:
            return Gate(metrics=inherited.metrics, tolerance=tolerance, explicit=inherited.explicit)
    else:
        metrics, keys_of_metrics = form, keys
    names = listed(metrics)
    if not names:
        raise source.error(keys_of_metrics, "no metrics; `gate: none` makes a hypothesis")
    for i, name in enumerate(names):
        at = (*keys_of_metrics, i) if isinstance(metrics, list) else keys_of_metrics
        if name not in METRICS:
            raise source.error(at, f"no metric {name!r}", near=(name, (*METRICS, "none")))
        if name in names[:i]:
            raise source.error(at, f"the metric {name!r} twice")
    return Gate(metrics=names, tolerance=tolerance, explicit=True)


def _probe(source: Source, keys: Keys, form: str | ProbeSpec | None, inherited: Probe | None) -> Probe | None:
    """`sane` and `{demand: sane, prompt: ...}`; a word alone keeps the inherited prompt."""
    if form is None:
        return inherited
    if form == "none":
        return None
    word = form.demand if isinstance(form, ProbeSpec) else form
    if word not in DEMANDS:
        raise source.error(keys, f"no probe demands {word!r}", near=(word, (*DEMANDS, "none")))
    base = inherited or Probe()
    if isinstance(form, ProbeSpec):
        return Probe(
            demand=word,  # type: ignore[arg-type]
            prompt=form.prompt or base.prompt,
            output_tokens=form.output_tokens,
        )
    return replace(base, demand=word)


def _dead_end(
    source: Source, keys: Keys, spec: ConfigSpec, probe: Probe | None
) -> tuple[DeadEnd | None, str | None]:
    """The dead end written here, and the registry entry named by `known` or by `xfail: {known: ...}`."""
    if spec.xfail is None:
        return None, spec.known
    at = (*keys, "xfail")
    if "known" in spec.xfail:
        name = source.convert(at, KnownDeadEnd).known
        if name == "none":
            raise source.error((*at, "known"), "no dead end; write `known: none` in the config itself")
        if spec.known not in (None, name):
            raise source.error((*keys, "known"), f"says {spec.known!r}, and xfail says {name!r}")
        return None, name
    written = dead_end(source, at, source.convert(at, DeadEndSpec))
    if spec.known not in (None, "none"):
        raise source.error((*keys, "known"), "this config writes its own xfail; give one of the two")
    if written.kind == "slower" and written.expect is None and spec.compare_to is None:
        raise source.error(at, "slower than what? give compare_to, or expect with a figure")
    if written.kind == "inert" and written.inert_log is None and spec.active_if is None:
        raise source.error(
            at, "nothing would show that it is inert; give inert_log, or active_if in the config"
        )
    if written.kind == "garbage" and probe is None:
        raise source.error(at, "nothing would show that it answers nonsense; give the config a probe")
    return written, spec.known


def _workload_names(
    source: Source, keys: Keys, names: list[str] | None, workloads: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Names after expansion: `decode` stands for `decode_c1` and `decode_c8` where it has a list."""
    if names is None:
        return ()
    if not names:
        raise source.error(keys, "an empty list; leave it out for all workloads")
    single = {name: (name,) for expanded in workloads.values() for name in expanded}
    found: list[str] = []
    for i, name in enumerate(names):
        expanded = workloads.get(name) or single.get(name)
        if expanded is None:
            raise source.error((*keys, i), f"no workload {name!r}", near=(name, (*workloads, *single)))
        if set(expanded) & set(found):
            raise source.error((*keys, i), f"the workload {name!r} twice")
        found += expanded
    return tuple(found)
