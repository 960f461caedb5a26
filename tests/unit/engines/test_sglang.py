from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import requests

from pytest_gpuserve.engines import sglang as module
from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.model_folder import FEWEST_TOKENS
from pytest_gpuserve.engines.sglang import SGLang
from pytest_gpuserve.errors import EngineMissing, SiteError, SuiteError
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Stub

TARGET = Target(host="127.0.0.1", port=31000)
WORKLOAD = Workload(name="decode", input_tokens=Lengths(mean=8), output_tokens=Lengths(mean=8))


def config(**changes: Any) -> Config:
    base: dict[str, Any] = {
        "id": "c",
        "place": Place("s.yaml", 1),
        "engine": "sglang",
        "model": ModelRef(id="org/model"),
        "args": {"tp-size": 2},
    }
    return Config(**{**base, **changes})


def site(**changes: Any) -> Site:
    return Site(**{"python": "/opt/venv/bin/python", **changes})


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *module.ENVIRONMENT,
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "no_proxy",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


# --- command ---


def test_command() -> None:
    command = SGLang().command(config(extra_args=("--enable-metrics",)), site(), TARGET, (2, 3))
    assert command.argv == (
        *("/opt/venv/bin/python", "-m", "sglang.launch_server", "--model-path", "org/model"),
        *("--host", "127.0.0.1", "--port", "31000", "--tp-size", "2", "--enable-metrics"),
    )
    assert command.env["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_revision_goes_with_a_hub_name_and_not_with_a_folder(tmp_path: Path) -> None:
    pinned = config(model=ModelRef(id="org/model", revision="abc"))
    assert "--revision" in SGLang().command(pinned, site(), TARGET, ()).argv
    mapped = SGLang().command(pinned, site(models={"org/model": str(tmp_path)}), TARGET, ()).argv
    assert "--revision" not in mapped and str(tmp_path) in mapped


def test_a_missing_model_folder_is_told_before_a_start(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="does not exist"):
        SGLang().command(config(), site(models={"org/model": str(tmp_path / "x")}), TARGET, ())


@pytest.mark.parametrize("flag", module.RESERVED)
def test_flags_that_are_ours_are_refused(flag: str) -> None:
    with pytest.raises(SuiteError, match=f"the flag `{flag}` is set by gpuserve"):
        SGLang().command(config(args={flag: "x"}), site(), TARGET, ())


def test_defaults_give_way_to_the_site_and_the_site_to_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    env = SGLang().command(config(), site(), TARGET, ()).env
    assert env["NCCL_DEBUG"] == "WARN" and env["SPT_NOENV"] == "1" and "CUDA_VISIBLE_DEVICES" not in env
    both = (
        SGLang()
        .command(config(env={"A": "suite"}), site(env={"A": "site", "NCCL_DEBUG": "INFO"}), TARGET, ())
        .env
    )
    assert (both["A"], both["NCCL_DEBUG"]) == ("suite", "INFO")
    monkeypatch.setenv("NCCL_DEBUG", "TRACE")
    assert "NCCL_DEBUG" not in SGLang().command(config(), site(), TARGET, ()).env


def test_a_proxy_is_kept_away_from_the_server_s_own_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no_proxy" not in SGLang().command(config(), site(), TARGET, ()).env
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "example.org")
    env = SGLang().command(config(), site(), TARGET, ()).env
    assert env["no_proxy"] == "example.org,127.0.0.1,localhost,::1"


# --- what is installed ---


def test_build_reads_versions_and_keeps_the_site_s_word_for_the_build(tmp_path: Path) -> None:
    for name, version in (("sglang", "0.5.15"), ("flashinfer_python", "0.6.12")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    found = SGLang().build(site(python=sys.executable, build="patched", env={"PYTHONPATH": str(tmp_path)}))
    assert (found.name, found.version, found.build) == ("sglang", "0.5.15", "patched")
    assert found.packages["flashinfer-python"] == "0.6.12"


def test_an_interpreter_without_sglang() -> None:
    with pytest.raises(EngineMissing, match=r"does not have sglang installed\. Name one that has sglang"):
        SGLang().build(site(python=sys.executable))


# --- how it is measured ---


@pytest.mark.parametrize(
    ("kind", "path", "ids"),
    [
        (None, "/generate", True),
        ("completions", "/v1/completions", True),
        ("chat", "/v1/chat/completions", False),
    ],
)
def test_api(kind: Any, path: str, ids: bool) -> None:
    api = SGLang().api(config(), msgspec.structs.replace(WORKLOAD, api=kind))
    assert (api.path, api.token_ids, api.chunk_usage, api.promises_done) == (path, ids, True, True)
    assert api.model == "org/model"
    assert api.vocabulary == FEWEST_TOKENS


def test_api_knows_the_vocabulary_and_the_name_that_is_served(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 5000}))
    named = config(args={"served-model-name": "short"})
    api = SGLang().api(named, WORKLOAD, site(models={"org/model": str(tmp_path)}))
    assert (api.vocabulary, api.model) == (5000, "short")


@pytest.mark.parametrize(("args", "expected"), [({}, False), ({"speculative-algorithm": "EAGLE3"}, True)])
def test_speculative(args: dict[str, Any], expected: bool) -> None:
    assert SGLang().speculative(config(args=args)) is expected


# --- control calls ---


def test_info_falls_back_to_the_old_path(stub: Stub) -> None:
    stub.answers["/get_server_info"] = [(200, '{"version": "0.5.9"}')]
    assert SGLang().info(stub.target) == {"version": "0.5.9"}
    stub.answers["/server_info"] = [(200, '{"version": "0.5.15"}')]
    assert SGLang().info(stub.target) == {"version": "0.5.15"}


def test_flush_asks_again_while_requests_run(stub: Stub) -> None:
    stub.answers["/flush_cache"] = [(400, "busy"), (400, "busy"), (200, "Cache flushed.")]
    SGLang().flush(stub.target)
    assert [asked.partition("?")[0] for asked in stub.asked] == ["POST /flush_cache"] * 3


def test_flush_gives_up(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_PATIENCE_S", 0.0)
    stub.answers["/flush_cache"] = [(400, "busy")]
    with pytest.raises(requests.HTTPError, match="400"):
        SGLang().flush(stub.target)


def test_flush_does_not_repeat_another_failure(stub: Stub) -> None:
    stub.answers["/flush_cache"] = [(500, "")]
    with pytest.raises(requests.HTTPError, match="500"):
        SGLang().flush(stub.target)
    assert len(stub.asked) == 1


def test_counters(stub: Stub) -> None:
    stub.answers["/metrics"] = [
        (
            200,
            'sglang:prompt_tokens_total{model_name="m"} 128.0\n'
            'sglang:generation_tokens_total{model_name="m"} 512.0\n'
            'sglang:spec_verify_calls_total{model_name="m"} 256.0\n'
            'sglang:cuda_graph_passes_total{mode="decode_none",model_name="m"} 3.0\n',
        )
    ]
    found = SGLang().counters(stub.target)
    assert found is not None
    assert (found.prompt_tokens, found.generated_tokens, found.verify_passes) == (128.0, 512.0, 256.0)
    assert (found.cuda_graph_misses, found.cached_tokens) == (3.0, None)


def test_counters_without_enable_metrics(stub: Stub) -> None:
    assert SGLang().counters(stub.target) is None


def test_a_server_that_is_not_there_is_a_request_exception(stub: Stub) -> None:
    target = stub.target
    stub.close()
    for call in (SGLang().info, SGLang().flush, SGLang().counters):
        with pytest.raises(requests.RequestException):
            call(target)
