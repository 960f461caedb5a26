"""The data files themselves: that they hold together, and that no figure is there without its source."""

from __future__ import annotations

import math
import re

import pytest

from pytest_gpuserve.engines.simulated import profile as module
from pytest_gpuserve.engines.simulated.arguments import defaults
from pytest_gpuserve.engines.simulated.profile import (
    DEFAULT_PROFILE,
    PROFILES,
    Figure,
    Serving,
    death_text,
    load_flags,
    load_profile,
    load_version,
    versions,
)
from pytest_gpuserve.errors import InputError

PROFILE = load_profile()
VERSIONS = {name: load_version(DEFAULT_PROFILE, name) for name in versions()}
SERVINGS = {
    f"{where}-{name}": serving
    for where, table in [("profile", PROFILE.serving), *((n, v.serving) for n, v in VERSIONS.items())]
    for name, serving in table.items()
}
each_version = pytest.mark.parametrize("name", VERSIONS)
each_serving = pytest.mark.parametrize("serving", SERVINGS.values(), ids=SERVINGS)


def test_the_story_and_a_stock_version() -> None:
    assert set(VERSIONS) == {"story", "0.5.14"}
    assert (VERSIONS["story"].build, VERSIONS["0.5.14"].build) == ("patched", "stock")


@each_serving
def test_every_figure_names_its_source(serving: Serving) -> None:
    figures = [getattr(serving, name) for name in serving.__struct_fields__]
    for figure in (figure for figure in figures if isinstance(figure, Figure)):
        assert figure.source.strip(), figure


def test_only_what_the_story_told_counts_as_reported() -> None:
    reported = {
        (key, figure.value)
        for key, serving in SERVINGS.items()
        for name in serving.__struct_fields__
        if isinstance(figure := getattr(serving, name), Figure) and figure.kind == "reported"
    }
    assert reported == {
        ("profile-no-spec", 89.5),
        ("profile-eagle3", 54.1),
        ("profile-custom-allreduce-pcie", 38),
    }


@each_serving
def test_a_request_takes_what_its_throughput_says(serving: Serving) -> None:
    """Play a request step by step, without the property that computes the step's time."""
    request = serving.taken_for
    tokens, passes, milliseconds = 1, 0, serving.first_ms(request.input_tokens)
    while tokens < request.output_tokens:
        tokens += serving.passes[passes % len(serving.passes)]
        passes += 1
        milliseconds += serving.step_ms
    assert 1000 * request.output_tokens / milliseconds == pytest.approx(
        serving.output_throughput.value, rel=1e-9
    )


@each_serving
def test_verify_passes_have_the_accept_length_that_is_claimed(serving: Serving) -> None:
    mean = sum(serving.passes) / len(serving.passes)
    assert mean == (serving.accept_length.value if serving.accept_length else 1)


def test_a_verify_pass_has_room_for_its_communication() -> None:
    """122 all-reduces of about 200 us are 24.4 ms of it, and what is left is about a decode step."""
    left = PROFILE.serving["eagle3"].step_ms - 122 * 0.2
    assert 0.8 * PROFILE.serving["no-spec"].step_ms < left < 1.5 * PROFILE.serving["no-spec"].step_ms


@each_version
def test_texts_exist_and_are_all_used(name: str) -> None:
    version = VERSIONS[name]
    used = {version.crash, version.otherwise} | {route.dies.text for route in version.routes if route.dies}
    for file in used:
        assert death_text(DEFAULT_PROFILE, file)
    there = {file.name for file in (PROFILES / DEFAULT_PROFILE / "deaths").glob(f"*-{version.version}.txt")}
    assert there == used


@each_version
def test_routes_name_settings_that_the_version_has(name: str) -> None:
    version = VERSIONS[name]
    usual = defaults(version.flags)
    served = {**PROFILE.serving, **version.serving}
    for route in version.routes:
        assert route.source and route.serves in served
        for field, value in {**route.args, **route.optional}.items():
            assert field in usual and value != usual[field]
    for field in PROFILE.base.args:
        assert field in usual


@each_version
def test_no_two_routes_are_alike(name: str) -> None:
    routes = VERSIONS[name].routes
    assert len({(str(sorted(r.args.items())), str(sorted(r.env.items()))) for r in routes}) == len(routes)
    assert len({r.name for r in routes}) == len(routes)


@each_version
def test_deaths_say_how_they_are_known(name: str) -> None:
    for route in VERSIONS[name].routes:
        if route.dies:
            assert re.match(r"(reported|read in source|inferred|assumed)\b", route.dies.source), route.name
            assert route.dies.exit in (-9, 1, 2)


@each_version
def test_a_start_takes_a_second_of_real_time(name: str) -> None:
    assert sum(step.after for step in VERSIONS[name].start) / 200 < 1.2


@each_version
def test_flags_are_unambiguous(name: str) -> None:
    flags = load_flags(VERSIONS[name].flags)
    names = [name for flag in flags for name in flag.names]
    assert len(names) == len(set(names)) > 300


def test_what_does_not_exist_lists_what_does() -> None:
    with pytest.raises(InputError, match=f"unknown host profile 'x'; there are: {DEFAULT_PROFILE}"):
        load_profile("x")
    with pytest.raises(InputError, match=r"unknown version '1'; there are: 0\.5\.14, story"):
        load_version(DEFAULT_PROFILE, "1")


def test_a_data_file_with_a_slip_names_file_and_key(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path)) / "bad"
    folder.mkdir()
    text = (PROFILES / DEFAULT_PROFILE / "profile.yaml").read_text()
    (folder / "profile.yaml").write_text(text.replace("kind: reported", "kind: rumoured", 1))
    monkeypatch.setattr(module, "PROFILES", folder.parent)
    with pytest.raises(
        InputError, match=r"bad/profile\.yaml: Invalid enum value 'rumoured' - at `\$\.serving"
    ):
        load_profile("bad")


def test_shares_of_a_step() -> None:
    assert math.isclose(PROFILE.serving["no-spec"].step_ms, 11.08, abs_tol=0.01)
