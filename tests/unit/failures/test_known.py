from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpuserve.errors import SuiteError
from pytest_gpuserve.failures.known import Registry
from pytest_gpuserve.model import ActiveIf, Config, EngineBuild, Host, ModelRef, Place, Requires

OURS = Registry.load()

BLACKWELL = Host(
    profile="rtx-pro-6000-blackwell-x8",
    product="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    count=8,
    compute_capability="12.0",
    topology="pcie",
    driver="580.82",
    memory_gib=94.97,
)
H200 = Host(
    profile="h200-x2",
    product="NVIDIA H200",
    count=2,
    compute_capability="9.0",
    topology="nvlink",
    driver="580.82",
    memory_gib=139.8,
)
NO_GPU = Host(
    profile="cpu", product="", count=0, compute_capability="", topology="none", driver="", memory_gib=0
)


def config(args: dict[str, Any] | None = None, env: dict[str, str] | None = None, **fields: Any) -> Config:
    """A config that sets these flags and variables itself, above defaults of its suite."""
    own = {"own_args": frozenset(args or {}), "own_env": frozenset(env or {})} | fields
    return Config(
        id="c",
        place=Place("suites/x.yaml", 1),
        engine=own.pop("engine", "sglang"),
        model=ModelRef(id="m"),
        args={"tp-size": 8, **(args or {})},
        env={"NCCL_DEBUG": "WARN", **(env or {})},
        **own,
    )


def sglang(version: str, build: str = "stock", **packages: str) -> EngineBuild:
    return EngineBuild(
        name="sglang",
        version=version,
        build=build,
        packages={name.replace("_", "-"): number for name, number in packages.items()},
    )


SYMM = config({"enable-torch-symm-mem": True})
FUSION = config({"enable-flashinfer-allreduce-fusion": True}, active_if=ActiveIf(log="workspace initialized"))
FORCED = config(env={"SGLANG_FORCE_CUSTOM_ALL_REDUCE_PCIE": "1"})
TREE = config(env={"NCCL_ALGO": "Tree"})
A2A = config({"moe-a2a-backend": "flashinfer", "moe-runner-backend": "flashinfer_cutlass"})
DEEPEP = config({"moe-a2a-backend": "deepep"})
IPC = config(
    env={"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}, active_if=ActiveIf(log="PCIe-IPC workspace built")
)
MAX_BS = config({"cuda-graph-max-bs": 32})


# --- what stock versions do on 8x SM120 behind PCIe, as their source reads ---------------------------


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        # 0.5.9 0.5.10.post1 0.5.11 0.5.13.post1 0.5.14 0.5.16 0.5.21 0.5.23
        (SYMM, "start start start start inert inert inert inert"),
        (FUSION, "inert inert inert inert start start start start"),
        (FORCED, "inert inert inert inert inert inert inert inert"),
        (TREE, "start start start start start start start start"),
        (A2A, "start start start start start start start start"),
        (DEEPEP, "missing missing missing missing missing missing missing missing"),
        (IPC, "inert inert inert inert inert inert inert -"),
        (MAX_BS, "- - - - - - start start"),
    ],
    ids=["symm-mem", "fusion", "custom", "tree", "a2a", "deepep", "ipc", "max-bs"],
)
def test_every_version_of_the_table(path: Config, kinds: str) -> None:
    wheels = ["0.5.9", "0.5.10.post1", "0.5.11", "0.5.13.post1", "0.5.14", "0.5.16", "0.5.21", "0.5.23"]
    flashinfer = {"0.5.21": "0.6.18", "0.5.23": "0.7.2"}
    found = []
    for wheel in wheels:
        build = sglang(wheel, flashinfer_python=flashinfer.get(wheel, "0.6.12"))
        end = OURS.resolve(path, build, BLACKWELL)
        found.append(end.kind if end else "-")
    assert " ".join(found) == kinds


@pytest.mark.parametrize(
    ("path", "kind", "phases"),
    [
        (SYMM, "start", {"comm_init"}),
        (FUSION, "start", {"cuda_graph_capture"}),
        (FORCED, "slower", set()),
        (TREE, "start", {"comm_init", "cuda_graph_capture", "warmup"}),
        (A2A, "start", set()),
        (DEEPEP, "missing", {"weights_load"}),
    ],
)
def test_the_founding_story_took_every_path(path: Config, kind: str, phases: set[str]) -> None:
    end = OURS.resolve(path, sglang("0.5.10", "patched", flashinfer_python="0.6.7.post3"), BLACKWELL)
    assert end is not None
    assert (end.kind, end.phases) == (kind, phases)
    if kind == "slower":
        assert end.expect is not None
        assert (end.expect.metric, end.expect.value, end.expect.tolerance) == ("output_throughput", 38, 0.15)


@pytest.mark.parametrize(
    ("path", "version", "message"),
    [
        (A2A, "0.5.15", "dp_size == tp_size"),
        (A2A, "0.5.22", "attn-dp-size"),
        (FUSION, "0.5.14rc1", "SM90 or SM10X"),
        (SYMM, "0.5.13.post1", "^12$"),
    ],
)
def test_the_message_is_that_of_the_version(path: Config, version: str, message: str) -> None:
    end = OURS.resolve(path, sglang(version), BLACKWELL)
    assert end is not None
    assert any(message in str(match.message) for match in end.match)


def test_other_hosts_are_not_concerned() -> None:
    for path in (SYMM, FUSION, FORCED):
        assert OURS.resolve(path, sglang("0.5.15"), H200) is None
        assert OURS.resolve(path, sglang("0.5.15"), NO_GPU) is None
    assert OURS.resolve(DEEPEP, sglang("0.5.15"), H200) is not None
    assert OURS.resolve(DEEPEP, sglang("0.5.15", deep_ep="1.2.0"), H200) is None


def test_where_deepep_is_installed_it_fails_at_peer_access_without_nvlink() -> None:
    end = OURS.resolve(DEEPEP, sglang("0.5.19", sgl_deep_ep="0.1.0"), BLACKWELL)
    assert end is not None
    assert (end.kind, end.evidence.kind if end.evidence else "") == ("start", "inferred")


def test_an_inert_path_that_nothing_shows_is_an_ordinary_case() -> None:
    silent = config({"enable-flashinfer-allreduce-fusion": True})
    assert OURS.resolve(silent, sglang("0.5.9"), BLACKWELL) is None
    assert OURS.resolve(silent, sglang("0.5.12"), BLACKWELL) is not None


# --- what selects an entry ----------------------------------------------------------------------------


def test_a_config_is_marked_by_what_it_sets_itself() -> None:
    assert [entry.name for entry in OURS.selected(SYMM)] == ["sglang-torch-symm-mem"]
    inherited = config({"enable-torch-symm-mem": True}, own_args=frozenset())
    assert OURS.selected(inherited) == ()


@pytest.mark.parametrize("value", [False, "false"])
def test_the_value_counts(value: object) -> None:
    assert OURS.selected(config({"enable-torch-symm-mem": value})) == ()


def test_spellings_of_a_flag_are_one() -> None:
    assert OURS.selected(config({"enable_torch_symm_mem": True}))


def test_tree_for_one_collective_is_another_path() -> None:
    assert OURS.selected(config(env={"NCCL_ALGO": "allreduce:tree"})) == ()


def test_a_setting_can_make_it_another_path() -> None:
    attention = {"moe-a2a-backend": "flashinfer", "enable-dp-attention": True, "dp-size": 8}
    assert OURS.selected(config(attention, own_args=frozenset({"moe-a2a-backend"}))) == ()


def test_any_value_may_select() -> None:
    assert [entry.name for entry in OURS.selected(MAX_BS)] == ["sglang-cuda-graph-max-bs-removed"]


def test_naming_an_entry_selects_it_alone() -> None:
    named = config({"enable-torch-symm-mem": True}, known="sglang-nccl-algo-tree")
    assert [entry.name for entry in OURS.selected(named)] == ["sglang-nccl-algo-tree"]
    end = OURS.resolve(named, sglang("0.5.15"), H200)
    assert end is not None
    assert end.entry == "sglang-nccl-algo-tree"


def test_none_opts_out() -> None:
    assert OURS.possible(config({"enable-torch-symm-mem": True}, known="none")) == ()


def test_another_engine_is_not_concerned() -> None:
    assert OURS.selected(config({"enable-torch-symm-mem": True}, engine="vllm")) == ()


def test_everything_possible_is_known_without_engine_and_host() -> None:
    assert [end.kind for end in OURS.possible(SYMM)] == ["start", "inert", "inert"]


def test_what_a_config_demands_rules_dead_ends_out() -> None:
    """So that a hypothesis on newer versions is not marked as the dead end that it was on older ones."""

    def kinds(path: Config, **demand: Any) -> list[str]:
        asked = msgspec.structs.replace(path, requires=(Requires(gpus=8), Requires(**demand)))
        return [end.kind for end in OURS.possible(asked)]

    assert kinds(IPC) == ["inert", "inert"]
    assert kinds(IPC, engine=("sglang>=0.5.21",), packages=("flashinfer_python>0.6.18",)) == []
    assert kinds(FORCED, build="patched") == ["slower"]
    assert kinds(SYMM, compute_capability="12.0", topology="pcie") == ["start", "inert"]
    assert kinds(SYMM, topology="nvlink") == ["start", "inert"]
    assert kinds(SYMM, engine=("sglang>=0.5.14", "torch>=2")) == ["inert", "inert"]


# --- users' folders -------------------------------------------------------------------------------------

MINE = """\
engine: sglang
entries:
  {name}:
    title: Mine
    selects: {{args: {{enable-torch-symm-mem: true}}}}
    behaviours:
      - engine: ">=0.5.7"
        kind: start
        reason: mine
        match: {{exception: KeyError}}
"""


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_a_local_entry_replaces_ours(tmp_path: Path) -> None:
    folder = written(tmp_path / "known", MINE.format(name="sglang-torch-symm-mem"))
    registry = Registry.load([folder])
    end = registry.resolve(SYMM, sglang("0.5.15"), H200)
    assert end is not None
    assert end.reason == "mine"
    assert end.place.line == 7
    assert end.place.file.endswith("mine.yaml")
    assert len(registry.names) == len(OURS.names)


def test_a_local_entry_of_another_name_comes_first(tmp_path: Path) -> None:
    registry = Registry.load([written(tmp_path, MINE.format(name="mine-too"))])
    end = registry.resolve(SYMM, sglang("0.5.15"), BLACKWELL)
    assert end is not None
    assert end.entry == "mine-too"
    assert "mine-too" in registry.names


def test_a_place_is_where_the_range_is_written() -> None:
    end = OURS.resolve(SYMM, sglang("0.5.9"), BLACKWELL)
    assert end is not None
    lines = Path(end.place.file).read_text(encoding="utf-8").splitlines()
    assert lines[end.place.line - 1].strip() == '- engine: ">=0.5.7,<0.5.14"'


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("kind: start", "kind: strat"), r"mine.yaml:8: .*behaviours\[0\].kind: 'strat' is none of"),
        ((">=0.5.7", ">=0.5.7,<=0.5.9"), r"mine.yaml:7: .*engine: .*the upper bound is exclusive"),
        (
            ("exception: KeyError", "class: hw_unsuported"),
            r"mine.yaml:10: .*no failure class; did you mean 'hw_unsupported'",
        ),
        (("exception: KeyError", "message: '('"), r"mine.yaml:10: .*message"),
        (("match: {exception: KeyError}", "phases: [comm_init]"), "needs a match"),
        (("reason: mine", "phases: [comm_init]"), "has no reason"),
        (("kind: start", "kinds: start"), "unknown key; did you mean 'kind'"),
        (('engine: ">=0.5.7"', "host: {engine: 'sglang>=1'}"), "is about the host alone"),
        (("title: Mine", "titel: Mine"), "unknown key; did you mean 'title'"),
        (("  mine:", "  Mine Too:"), "is no name for an entry"),
        (("reason: mine", "reason: mine\n        example: {source: x}"), "give `log` or `file`"),
        (("reason: mine", "reason: mine\n        example: {source: x, file: no.log}"), "cannot be read"),
        (("reason: mine", "reason: mine\n        inert_log: x"), "belongs to kind 'inert'"),
    ],
)
def test_a_wrong_entry_is_an_error_at_its_place(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    text = MINE.format(name="mine")
    assert change[0] in text
    folder = written(tmp_path, text.replace(*change))
    with pytest.raises(SuiteError) as error:
        Registry.load([folder])
    assert re.search(told, str(error.value)), str(error.value)


def test_two_local_entries_of_one_name_are_an_error(tmp_path: Path) -> None:
    written(tmp_path, MINE.format(name="mine"))
    with pytest.raises(SuiteError, match=r"already written at .*a\.yaml:3"):
        Registry.load([written(tmp_path, MINE.format(name="mine"), "a.yaml")])


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="does not exist"):
        Registry.load([tmp_path / "nope"])
