from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_gpuserve.check.explain_text import as_dict, as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_gpuserve.check.explain import Explanation
    from pytest_gpuserve.check.package import Package

    Ask = Callable[..., Explanation]


def test_demands_come_first_with_what_they_speak_of(old: Package, ask: Ask) -> None:
    text = as_text(ask(old, "moe-a2a-backend=flashinfer"))
    assert text.startswith("sglang 0.5.9: --moe-a2a-backend flashinfer\n")
    assert "It demands something of: moe-runner-backend" in text
    headings = [line.rstrip(":") for line in text.splitlines() if line and not line.startswith(" ")]
    assert [one for one in headings if one in ("Sets", "Says", "Is overridden") or "Demands" in one] == [
        "Demands while options are resolved, in the order in which they come",
        "Demands later, in the engine",
        "Sets",
        "Is overridden",
        "Says",
    ]
    assert "self.ep_size = self.tp_size" in text
    assert "can never hold with this value; AssertionError: cutedsl takes none or deepep" in text
    assert max(len(line) for line in text.splitlines() if "called by" not in line) <= 110


def test_certain_and_earlier_conditions_are_not_told(old: Package, ask: Ask) -> None:
    text = as_text(ask(old, "moe-a2a-backend=deepep"))
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if "Base.__init__" in line)
    assert lines[start + 1 : start + 3] == ["    if backend.is_deepep()", "    if not use_deep"]


def test_a_demand_in_newer_versions(new: Package, ask: Ask) -> None:
    text = as_text(ask(new, "moe-a2a-backend=flashinfer"))
    assert "It demands something of: tp-size, attn-dp-size, moe-runner-backend" in text
    assert "ep_size = view.tp_size" in text
    assert "Demands of particular models and features" in text


def test_what_is_the_same_without_the_flag_is_counted(new: Package, ask: Ask) -> None:
    found = ask(new, "moe-a2a-backend=flashinfer")
    same = sum(not site.telling for site in found.sites)
    assert same and f"{same} places come out the same without it; --all lists them." in as_text(found)
    assert "--all lists them" not in as_text(found, every=True)


def test_nothing_reads_it(old: Package, ask: Ask) -> None:
    assert as_text(ask(old, "NCCL_NVLS_ENABLE=1")) == (
        "sglang 0.5.9: NCCL_NVLS_ENABLE=1\n\nNothing in sglang 0.5.9 reads it.\n"
    )


def test_json(old: Package, ask: Ask) -> None:
    told = as_dict(ask(old, "moe-a2a-backend=flashinfer", "deepep-mode=auto"))
    assert (told["option"], told["value"], told["any_value"]) == ("moe-a2a-backend", "flashinfer", False)
    (demand,) = [one for one in told["demands"] if "flashinfer_cutlass" in one["message"]]
    assert demand["options"] == ["moe-runner-backend"]
    assert demand["when"] == ["self.moe_a2a_backend == 'flashinfer'"]
    assert demand["stage"] == "arguments"
    assert {(one["sets"], one["value"]) for one in told["settings"]} >= {("ep_size", "self.tp_size")}
    assert as_dict(ask(old, "moe-a2a-backend"))["any_value"]
