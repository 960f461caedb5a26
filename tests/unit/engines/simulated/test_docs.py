"""The page about the simulated host against the data that it describes."""

from __future__ import annotations

from pathlib import Path

from pytest_gpuserve.engines.simulated.perturb import ACTIONS
from pytest_gpuserve.engines.simulated.profile import Figure, load_profile, versions

PAGE = (Path(__file__).parents[4] / "docs" / "simulated-host.md").read_text()
NAMES = {
    "output_throughput": "output throughput, tok/s",
    "first_token_ms": "time to first token without the prompt's own, ms",
    "prefill_throughput": "prefill throughput, tok/s",
    "accept_length": "accept length",
}


def rows() -> list[str]:
    """Each figure once, with the first serving that has it."""
    found: dict[tuple[str, Figure], str] = {}
    for serving, figures in load_profile().serving.items():
        for name, title in NAMES.items():
            figure = getattr(figures, name)
            if figure is not None and (name, figure) not in found:
                row = f"| {serving} | {title} | {figure.value:g} | {figure.kind} | {figure.source} |"
                found[name, figure] = row
    return list(found.values())


def test_the_table_of_figures_is_that_of_the_profile() -> None:
    table = PAGE.partition("<!-- figures:begin -->\n")[2].partition("<!-- figures:end -->")[0]
    assert sorted(table.splitlines()[2:]) == sorted(rows())


def test_step_times_in_the_text() -> None:
    serving = load_profile().serving
    assert f"A decode step then takes {serving['no-spec'].step_ms:.1f} ms" in PAGE
    verify = serving["eagle3"].step_ms
    assert f"a verify pass {verify:.1f} ms" in PAGE and f"{verify - 24.4:.1f} ms are left" in PAGE


def test_every_perturbation_and_version_is_named() -> None:
    for action in ACTIONS:
        assert f"`{action}:CONFIG`" in PAGE
    for version in versions():
        assert f"`{version}`" in PAGE
