from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_gpuserve.check.explain import Explanation
    from pytest_gpuserve.check.package import Package
    from pytest_gpuserve.check.site import Site

    Ask = Callable[..., Explanation]
    Make = Callable[..., Package]


def texts(sites: list[Site]) -> list[str]:
    return [site.message for site in sites]


def sets(sites: list[Site]) -> set[tuple[str, str]]:
    return {(site.sets, site.value) for site in sites}


# --- the version with everything in one class ---


def test_the_demand_of_a_value_with_place_condition_and_text(old: Package, ask: Ask) -> None:
    demand = ask(old, "moe-a2a-backend=flashinfer").of_kind("demand")[1]
    assert demand.file == "sglang/srt/server_args.py"
    assert demand.function == "ServerArgs._handle_a2a"
    assert demand.code == "assert self.moe_runner_backend in ['flashinfer_cutlass']"
    assert demand.exception == "AssertionError"
    assert demand.message == "A2A is only supported with flashinfer_cutlass"
    assert [one.code for one in demand.conditions if one.of_option] == [
        "self.moe_a2a_backend == 'flashinfer'"
    ]
    lines = (old.root / "srt/server_args.py").read_text().splitlines()
    assert "assert" in lines[demand.line - 1]
    assert lines[demand.end_line - 1].strip().startswith("]")


def test_branches_of_other_values_are_left_out(old: Package, ask: Ask) -> None:
    found = ask(old, "moe-a2a-backend=flashinfer")
    assert "mori is not ready" not in texts(found.of_kind("demand", every=True))
    assert "mori is not ready" in texts(ask(old, "moe-a2a-backend=mori").of_kind("demand"))


def test_without_a_value_all_branches_are_shown(old: Package, ask: Ask) -> None:
    told = texts(ask(old, "moe-a2a-backend").of_kind("demand"))
    assert {"mori is not ready", "A2A is only supported with flashinfer_cutlass"} <= set(told)


def test_what_a_value_sets(old: Package, ask: Ask) -> None:
    found = ask(old, "--moe_a2a_backend=flashinfer").of_kind("setting")
    assert sets(found) >= {
        ("ep_size", "self.tp_size"),
        ("disable_shared_experts_fusion", "True"),
        ("SGLANG_NVFP4_DISPATCH", "True"),
    }
    assert "self.ep_size = self.tp_size" in [site.code for site in found]


def test_a_demand_that_the_value_can_never_meet(old: Package, ask: Ask) -> None:
    found = {site.message: site for site in ask(old, "moe-a2a-backend=flashinfer").of_kind("demand")}
    assert found["cutedsl takes none or deepep"].fails
    assert not found["A2A is only supported with flashinfer_cutlass"].fails
    met = texts(ask(old, "moe-a2a-backend=deepep").of_kind("demand", every=True))
    assert "cutedsl takes none or deepep" not in met


def test_demands_come_in_the_order_of_the_calls_not_of_the_lines(old: Package, ask: Ask) -> None:
    told = texts(ask(old, "moe-a2a-backend=flashinfer").of_kind("demand"))
    # `_handle_kernels` stands below `_handle_a2a`, and is called first.
    assert told.index("cutedsl takes none or deepep") < told.index(
        "A2A is only supported with flashinfer_cutlass"
    )


def test_what_holds_without_the_flag_as_well_is_told_apart(old: Package, ask: Ask) -> None:
    found = ask(old, "moe-a2a-backend=flashinfer")
    late = "two batch overlap needs moe_a2a_backend"
    assert late not in texts(found.of_kind("demand", every=True))
    assert late in texts(ask(old, "moe-a2a-backend=none").of_kind("demand"))
    reads = {site.code for site in found.of_kind("read")}
    assert "if backend.is_none()" in reads
    assert "if backend.is_deepep()" not in reads  # false with the default too


def test_what_overrides_an_option(old: Package, ask: Ask) -> None:
    (site,) = ask(old, "moe-a2a-backend=flashinfer").of_kind("overridden")
    assert (site.value, [one.code for one in site.conditions]) == (
        "'deepep'",
        ["self.enable_context_parallel"],
    )


def test_given_options_meet_demands(old: Package, ask: Ask) -> None:
    wanted = "A2A is only supported with flashinfer_cutlass"
    met = ask(old, "moe-a2a-backend=flashinfer", "moe-runner-backend=flashinfer_cutlass")
    assert wanted not in texts(met.of_kind("demand", every=True))
    broken = ask(old, "moe-a2a-backend=flashinfer", "moe-runner-backend=triton")
    (site,) = [one for one in broken.of_kind("demand") if one.message == wanted]
    assert site.conditions[-1].holds


def test_warnings_keep_their_placeholders(old: Package, ask: Ask) -> None:
    told = texts(ask(old, "moe-a2a-backend=flashinfer").of_kind("warning"))
    assert "EP is set to [{self.tp_size}]." in told
    assert "EP is set to [{self.tp_size}]." not in texts(
        ask(old, "moe-a2a-backend=deepep").of_kind("warning", every=True)
    )


# --- behind the resolution of options ---


def test_constructors_are_followed_to_what_they_demand(old: Package, ask: Ask) -> None:
    found = ask(old, "moe-a2a-backend=deepep").of_kind("demand")
    (site,) = [one for one in found if one.exception == "ImportError"]
    assert site.message == "DeepEP is not installed."
    assert (site.function, site.file) == ("Base.__init__", "sglang/srt/moe/dispatcher.py")
    assert "layer.py" in site.via[0]
    assert "DeepEP is not installed." not in texts(ask(old, "moe-a2a-backend=flashinfer").of_kind("demand"))


def test_an_answer_computed_from_the_option_counts_as_reading_it(old: Package, ask: Ask) -> None:
    demand = {site.message: site for site in ask(old, "moe-a2a-backend=flashinfer").of_kind("demand")}
    assert demand["not gathered"].conditions[-1].holds


def test_a_function_that_is_handed_the_option_is_followed(old: Package, ask: Ask) -> None:
    (site,) = ask(old, "fusion-backend=auto").of_kind("demand")
    assert site.message == "fusion needs SM90"
    assert [one.code for one in site.conditions] == ["backend is not None", "not is_sm90()"]


def test_an_option_is_followed_through_arguments_and_globals(old: Package, ask: Ask) -> None:
    found = ask(old, "enable-torch-symm-mem")
    (site,) = found.of_kind("demand")
    assert (site.exception, site.message) == ("KeyError", "SIZES has entries for 9, 10 alone")
    assert site.code == "SIZES[self.capability]"
    assert texts(found.of_kind("warning")) == ["capability %s is not supported"]


def test_other_objects_with_an_attribute_of_that_name_are_only_counted(old: Package, ask: Ask) -> None:
    found = ask(old, "moe-a2a-backend=flashinfer")
    assert [file for file, _ in found.same_name] == ["sglang/srt/runner.py"]
    assert not [site for site in found.sites if site.function == "Other.size"]


def test_tests_of_the_engine_and_files_that_are_no_python_are_passed_over(old: Package, ask: Ask) -> None:
    files = {site.file for site in ask(old, "moe-a2a-backend").sites}
    assert "sglang/test/fixture.py" not in files
    assert "sglang/srt/template.py" not in files


# --- the version with hooks and annotated fields ---


def test_hooks_demand_in_the_order_of_the_pipeline(new: Package, ask: Ask) -> None:
    told = [site.message for site in ask(new, "moe-a2a-backend=flashinfer").of_kind("demand") if site.reached]
    assert told[:3] == [
        "A2A requires --attn-dp-size equal to --tp-size",
        "unset SGLANG_NVFP4_DISPATCH",
        "A2A is only supported with flashinfer_cutlass or flashinfer_trtllm",
    ]
    # After the early return of all other values.
    assert told[3] == "token budget exceeds {envs.SGLANG_TOKENS.get()}"


def test_settings_by_returned_dictionary_and_by_declaration(new: Package, ask: Ask) -> None:
    assert sets(ask(new, "moe-a2a-backend=flashinfer").of_kind("setting")) == {
        ("ep_size", "view.tp_size"),
        ("disable_shared_experts_fusion", "True"),
    }
    assert ("moe_runner_backend", "'deep_gemm'") in sets(
        ask(new, "moe-a2a-backend=deepep").of_kind("setting")
    )


def test_the_machinery_of_declarations_is_not_followed(new: Package, ask: Ask) -> None:
    assert "no fields" not in texts(ask(new, "moe-a2a-backend=flashinfer").of_kind("demand", every=True))


def test_a_helper_is_followed_and_says_from_where(new: Package, ask: Ask) -> None:
    found = {site.message: site for site in ask(new, "moe-a2a-backend=flashinfer").of_kind("demand")}
    (via,) = found["unset SGLANG_NVFP4_DISPATCH"].via
    assert via.startswith("check_dispatch at sglang/srt/arg_groups/moe_hook.py:")


def test_match_statements(new: Package, ask: Ask) -> None:
    found = ask(new, "moe-a2a-backend=flashinfer")
    (site,) = [one for one in found.of_kind("demand") if one.message == "Llama takes no flashinfer"]
    assert not site.reached  # nothing in the pipeline calls it: a matter of one model
    assert ("moe_runner_backend", "'marlin'") not in sets(found.of_kind("setting", every=True))


# --- environment variables ---


def test_a_variable_and_what_it_demands(new: Package, ask: Ask) -> None:
    found = ask(new, "SGLANG_NVFP4_DISPATCH=1")
    assert texts(found.of_kind("demand")) == ["unset SGLANG_NVFP4_DISPATCH"]
    assert ask(new, "SGLANG_NVFP4_DISPATCH=0").of_kind("demand", every=True) == []


def test_a_variable_that_is_set_elsewhere(old: Package, ask: Ask) -> None:
    found = ask(old, "SGLANG_NVFP4_DISPATCH=1")
    # `os.environ.get(...) is None` does not hold any more, so nothing overrides it.
    assert found.of_kind("overridden", every=True) == []
    assert [site.value for site in ask(old, "SGLANG_NVFP4_DISPATCH").of_kind("overridden")] == ["True"]


READERS = {
    'os.environ.get("NCCL_ALGO") == "Tree"': True,
    'os.getenv("NCCL_ALGO", "Ring") == "Ring"': False,
    'os.environ["NCCL_ALGO"].lower() == "tree"': True,
    '"NCCL_ALGO" not in os.environ': False,
    'os.environ.get("NCCL_ALGO") is None': False,
    'get_bool_env_var("NCCL_ALGO")': None,
    'os.environ.get("NCCL_ALGO") == other': None,
}


@pytest.mark.parametrize(("condition", "holds"), READERS.items())
def test_ways_to_read_a_variable(source: Make, ask: Ask, condition: str, holds: bool | None) -> None:
    package = source(srt__a=f"import os\ndef f(other):\n    if {condition}:\n        raise ValueError('x')\n")
    found = ask(package, "NCCL_ALGO=Tree").of_kind("demand", every=True)
    assert [site.conditions[0].holds for site in found] == ([] if holds is False else [holds])


# --- questions that cannot be answered ---


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("moe-a2a-backnd=deepep", "no option 'moe-a2a-backnd'; did you mean moe-a2a-backend"),
        ("moe-a2a-backend=deepp", "'deepp' is none of the choices of moe-a2a-backend: none, deepep"),
        ("tp-size=eight", "tp-size takes int, not 'eight'"),
    ],
)
def test_bad_questions(new: Package, ask: Ask, question: str, told: str) -> None:
    with pytest.raises(InputError, match=r"sglang 0\.5\.23") as error:
        ask(new, question)
    assert told in str(error.value)


def test_a_variable_that_nobody_declares_is_no_error(old: Package, ask: Ask) -> None:
    assert ask(old, "NCCL_NVLS_ENABLE=1").sites == ()


# --- conditions ---


def conditions(package: Package, ask: Ask, question: str) -> list[list[str]]:
    found = ask(package, question).of_kind("demand", every=True)
    return [[one.code for one in site.conditions] for site in found]


ARGS = """
from dataclasses import dataclass
@dataclass
class ServerArgs:
    mode: str = "a"
    size: int = 1
    def __post_init__(self):
{body}
"""


def args(body: str) -> str:
    return ARGS.format(body="\n".join(" " * 8 + line for line in body.splitlines()))


def test_what_follows_an_early_return_has_the_opposite_condition(source: Make, ask: Ask) -> None:
    package = source(srt__server_args=args("if self.mode != 'b':\n    return\nassert self.size > 1, 'big'"))
    assert conditions(package, ask, "mode=b") == [["self.mode == 'b'"]]
    assert conditions(package, ask, "mode=c") == []


def test_what_follows_a_refused_combination_is_no_branch_of_its_own(source: Make, ask: Ask) -> None:
    body = (
        "if self.mode == 'x':\n    raise ValueError('no x')\nif self.size > 4:\n    raise ValueError('size')"
    )
    package = source(srt__server_args=args(body))
    assert conditions(package, ask, "mode=b") == []
    assert conditions(package, ask, "mode=x") == [["self.mode == 'x'"]]


def test_a_local_name_stands_for_what_it_was_set_to(source: Make, ask: Ask) -> None:
    body = "special = self.mode == 'b' and self.size > 1\nif special:\n    raise ValueError('special')"
    package = source(srt__server_args=args(body))
    (site,) = ask(package, "mode=b").of_kind("demand")
    assert (site.conditions[0].holds, site.conditions[0].telling) == (None, True)
    assert ask(package, "mode=c").of_kind("demand", every=True) == []


def test_a_name_set_twice_is_not_guessed(source: Make, ask: Ask) -> None:
    body = (
        "mode = self.mode\nif self.size > 1:\n    mode = 'other'\n"
        "if mode == 'other':\n    raise ValueError('other')"
    )
    (site,) = ask(source(srt__server_args=args(body)), "mode=b").of_kind("demand")
    assert site.conditions[-1].holds is None


def test_an_alternative_that_the_value_does_not_decide(source: Make, ask: Ask) -> None:
    body = "if self.size > 1 or self.mode == 'x':\n    raise ValueError('either')"
    package = source(srt__server_args=args(body))
    (site,) = ask(package, "mode=b").of_kind("demand", every=True)
    assert not site.telling  # it depends on the size alone, with the default just as well
    assert ask(package, "mode=x").of_kind("demand")[0].telling


def test_handlers_and_loops_are_walked(source: Make, ask: Ask) -> None:
    body = (
        "for name in ('a', 'b'):\n    with open(name):\n        try:\n            import deep\n"
        "        except ImportError as e:\n            if self.mode == 'b':\n"
        "                raise ImportError(f'no deep: {e}') from e"
    )
    package = source(srt__server_args=args(body))
    assert conditions(package, ask, "mode=b") == [["except ImportError", "self.mode == 'b'"]]


def test_self_reference_and_recursion_end(source: Make, ask: Ask) -> None:
    body = "size = self.size\nwhile size:\n    size = size - 1 if self.mode == 'b' else size\nself.helper()\n"
    text = args(body) + "    def helper(self):\n        if self.mode == 'b':\n            self.helper()\n"
    assert ask(source(srt__server_args=text), "mode=b").of_kind("read")
