"""What suites and the registry of dead ends write alike: demands on a host, and documented failures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field, structs

from .model import DeadEnd, DeadEndKind, Evidence, Expect, Match, Phase, Requires
from .record import Metrics
from .yaml_values import Day, Pattern, day, pattern, share

if TYPE_CHECKING:
    from .yaml_source import Source
    from .yaml_types import Keys

METRICS: tuple[str, ...] = tuple(f.name for f in structs.fields(Metrics))
"""Names of the figures that a gate or an expectation can be about."""

EvidenceKind: TypeAlias = Literal["observed", "reported", "read in source", "inferred"]
TopologyClass: TypeAlias = Literal["nvlink", "pcie", "single", "none"]
EXPECT_TOLERANCE = 0.15
"""How far a `slower` dead end may be from its documented figure unless the file says otherwise."""

NEEDS_MATCH: frozenset[DeadEndKind] = frozenset({"start", "serve", "missing", "garbage"})
"""Kinds that are recognised by a text; without one, any failure at all would pass for the documented one."""


class RequiresSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a host and an engine must have; a case is skipped, with what is missing, where they do not."""

    gpus: Annotated[int, Meta(ge=1, description="At least so many GPUs.")] | None = None
    product: Pattern | None = None
    compute_capability: (
        Annotated[str, Meta(description="Exactly this, such as '12.0', or a range, such as '>=9.0'.")] | None
    ) = None
    topology: TopologyClass | None = None
    memory_gib: Annotated[float, Meta(gt=0, description="Of one GPU, at least.")] | None = None
    engine: (
        Annotated[str | list[str], Meta(description="Version ranges, such as 'sglang>=0.5.21,<0.6'.")] | None
    ) = None
    build: Annotated[str, Meta(description="Engine build as gpuserve.local.yaml declares it.")] | None = None
    packages: Annotated[str | list[str], Meta(description="Such as 'flashinfer_python>0.6.18'.")] | None = (
        None
    )
    missing_packages: (
        Annotated[str | list[str], Meta(description="Distributions that must not be installed.")] | None
    ) = None
    why: Annotated[str, Meta(description="Said beside what is missing.")] | None = None


class MatchSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a failure looks like; all that is given must fit."""

    failure_class: Annotated[
        str | list[str], Meta(description="Classes of the classifier, any of them; see docs/failures.md.")
    ] = field(name="class", default_factory=list)
    exception: Annotated[str, Meta(description="Exception type without its module.")] | None = None
    message: Pattern | None = None


class EvidenceSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """How it is known."""

    kind: EvidenceKind
    source: Annotated[str, Meta(description="Host and date, thread, or file and line in the engine.")] = ""


class DeadEndSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """A documented failure, as it is written; `dead_end` checks and builds it."""

    kind: DeadEndKind
    reason: Annotated[str, Meta(min_length=1)]
    phases: Phase | list[Phase] = field(default_factory=list)
    match: MatchSpec | list[MatchSpec] = field(default_factory=list)
    inert_log: Pattern | None = None
    expect: (
        Annotated[dict[str, float | str], Meta(description="{output_throughput: 54.1, tolerance: 15%}")]
        | None
    ) = None
    run: Annotated[bool, Meta(description="false: never start it, it harms the host.")] = True
    way_out: str | None = None
    link: str | None = None
    review: Annotated[Day, Meta(description="From this day on somebody should look again.")] | None = None
    evidence: EvidenceKind | EvidenceSpec | None = None


def requires(source: Source, keys: Keys, spec: RequiresSpec) -> Requires:
    """A demand whose ranges and expressions can be understood."""
    if spec.compute_capability is not None:
        _capability(source, (*keys, "compute_capability"), spec.compute_capability)
    if spec.product is not None:
        pattern(source, (*keys, "product"), spec.product)
    return Requires(
        gpus=spec.gpus,
        product=spec.product,
        compute_capability=spec.compute_capability,
        topology=spec.topology,
        memory_gib=spec.memory_gib,
        engine=_requirements(source, (*keys, "engine"), listed(spec.engine)),
        build=spec.build,
        packages=_requirements(source, (*keys, "packages"), listed(spec.packages)),
        missing_packages=_requirements(source, (*keys, "missing_packages"), listed(spec.missing_packages)),
        why=spec.why,
    )


def dead_end(source: Source, keys: Keys, spec: DeadEndSpec) -> DeadEnd:
    """A documented failure that can be told from others; the registry adds entry and range to it."""
    several = isinstance(spec.match, list)
    matches = spec.match if isinstance(spec.match, list) else [spec.match]
    if spec.kind in NEEDS_MATCH and not matches:
        raise source.error(keys, f"kind {spec.kind!r} needs a match: what the failure looks like")
    for name, kind in (("expect", "slower"), ("inert_log", "inert")):
        if getattr(spec, name) is not None and spec.kind != kind:
            raise source.error((*keys, name), f"belongs to kind {kind!r}, this is {spec.kind!r}")
    if spec.inert_log is not None:
        pattern(source, (*keys, "inert_log"), spec.inert_log)
    evidence = spec.evidence
    return DeadEnd(
        kind=spec.kind,
        reason=spec.reason,
        place=source.place(*keys),
        phases=frozenset(spec.phases if isinstance(spec.phases, list) else [spec.phases]),
        match=tuple(
            _match(source, (*keys, "match", i) if several else (*keys, "match"), match)
            for i, match in enumerate(matches)
        ),
        inert_log=spec.inert_log,
        expect=_expect(source, (*keys, "expect"), spec.expect) if spec.expect is not None else None,
        run=spec.run,
        way_out=spec.way_out,
        link=spec.link,
        review=day(source, (*keys, "review"), spec.review) if spec.review is not None else None,
        evidence=(
            Evidence(kind=evidence.kind, source=evidence.source)
            if isinstance(evidence, EvidenceSpec)
            else Evidence(kind=evidence) if evidence else None
        ),
    )  # fmt: skip


def listed(written: str | list[str] | None) -> tuple[str, ...]:
    """What may be written as one word or as a list of them."""
    if written is None:
        return ()
    return (written,) if isinstance(written, str) else tuple(written)


def _match(source: Source, keys: Keys, spec: MatchSpec) -> Match:
    if not (spec.failure_class or spec.exception or spec.message):
        raise source.error(keys, "says nothing; give class, exception or message")
    if spec.exception is not None and not spec.exception.isidentifier():
        raise source.error(
            (*keys, "exception"), f"{spec.exception!r} is no name of an exception type (without its module)"
        )
    if spec.message is not None:
        pattern(source, (*keys, "message"), spec.message)
    return Match(
        failure_class=listed(spec.failure_class), exception=spec.exception, message=spec.message
    )  # fmt: skip


def _expect(source: Source, keys: Keys, written: dict[str, str | float]) -> Expect:
    figures = {name: value for name, value in written.items() if name != "tolerance"}
    if len(figures) != 1:
        raise source.error(keys, "names one metric and its value, such as {output_throughput: 54.1}")
    (metric, value), *_ = figures.items()
    at = (*keys, metric)
    if metric not in METRICS:
        raise source.error(at, "no such metric", near=(metric, METRICS))
    if isinstance(value, str) or not 0 < value < float("inf"):
        raise source.error(at, f"expected a number above 0, got {value!r}")
    tolerance = written.get("tolerance", EXPECT_TOLERANCE)
    return Expect(metric=metric, value=value, tolerance=share(source, (*keys, "tolerance"), tolerance))


def _requirements(source: Source, keys: Keys, written: tuple[str, ...]) -> tuple[str, ...]:
    from packaging.requirements import InvalidRequirement, Requirement

    for text in written:
        try:
            Requirement(text)
        except InvalidRequirement:
            raise source.error(keys, f"{text!r} is no requirement such as 'sglang>=0.5.21'") from None
    return written


def _capability(source: Source, keys: Keys, written: str) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if re.fullmatch(r"\d+\.\d+", written):
        return
    try:
        SpecifierSet(written)
    except InvalidSpecifier:
        raise source.error(
            keys, f"{written!r} is neither a compute capability such as '12.0' nor a range such as '>=9.0'"
        ) from None
