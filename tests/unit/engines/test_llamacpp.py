from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines import llamacpp_server
from pytest_gpuserve.engines.llamacpp import LlamaCpp, gguf, program
from pytest_gpuserve.engines.tiny_model import MODELS
from pytest_gpuserve.errors import EngineMissing, SiteError, SuiteError
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import ModelRef
from pytest_gpuserve.serving.measure import accept_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Stub

    Make = Callable[..., Any]

TARGET = Target(host="127.0.0.1", port=31000)


@pytest.fixture(autouse=True)
def nothing_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def llama_server(tmp_path: Path) -> Path:
    """Says its version as the real one does: on stderr."""
    file = tmp_path / "bin" / "llama-server"
    file.write_text("#!/bin/sh\necho 'version: 6123 (abcdef0)' >&2\necho 'built with cc' >&2\n")
    file.chmod(0o755)
    return file


# --- which server ---


def test_embedded_when_there_is_no_llama_server(config: Make, site: Make, model: Path) -> None:
    asked = config("llamacpp", args={"threads": 2, "kv-unified": True}, extra_args=("--no-warmup",))
    command = LlamaCpp().command(asked, site(models={"org/model": str(model)}), TARGET, ())
    assert command.argv == (
        *("/opt/venv/bin/python", "-P", llamacpp_server.__file__, "--model", str(model)),
        *("--host", "127.0.0.1", "--port", "31000", "--metrics"),
        *("--threads", "2", "--kv-unified", "--no-warmup"),
    )


def test_llama_server_on_the_path_comes_first(
    config: Make, site: Make, model: Path, llama_server: Path
) -> None:
    command = LlamaCpp().command(config("llamacpp"), site(models={"org/model": str(model)}), TARGET, (1, 2))
    assert command.argv[:3] == (str(llama_server), "--model", str(model))
    assert command.env["CUDA_VISIBLE_DEVICES"] == "1,2"
    build = LlamaCpp().build(site())
    assert (build.version, build.packages) == ("6123", {})


def test_the_site_chooses(site: Make, llama_server: Path, tmp_path: Path) -> None:
    assert program(site(options={"server": "embedded"})) is None
    assert program(site(options={"server": str(llama_server)})) == str(llama_server)
    with pytest.raises(EngineMissing, match="cannot be run"):
        program(site(options={"server": str(tmp_path / "nowhere")}))


def test_a_hub_name_is_for_llama_server_alone(config: Make, site: Make, llama_server: Path) -> None:
    argv = LlamaCpp().command(config("llamacpp"), site(), TARGET, ()).argv
    assert argv[1:3] == ("--hf-repo", "org/model")
    with pytest.raises(SiteError, match="no such file or folder"):
        LlamaCpp().command(config("llamacpp"), site(options={"server": "embedded"}), TARGET, ())


def test_build_without_either_says_what_to_install(site: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        python_version, distributions = "3.11.7", {"numpy": "2.0"}

    monkeypatch.setattr("pytest_gpuserve.engines.llamacpp.installed", lambda *_, **__: Nothing)
    with pytest.raises(EngineMissing, match=r"pip install 'pytest-gpuserve\[local\]'"):
        LlamaCpp().build(site())


@pytest.mark.parametrize(("version", "number"), [("2026.10.11549", "11549"), ("2026.4.8672.1", "8672.1")])
def test_the_version_is_llama_cpps_own(
    site: Make, monkeypatch: pytest.MonkeyPatch, version: str, number: str
) -> None:
    class Found:
        python_version, distributions = "3.11.7", {"xllamacpp": version}

    monkeypatch.setattr("pytest_gpuserve.engines.llamacpp.installed", lambda *_, **__: Found)
    build = LlamaCpp().build(site())
    assert (build.version, build.packages) == (number, {"xllamacpp": version})


# --- model ---


def test_the_one_gguf_of_a_folder(site: Make, model: Path) -> None:
    at = site(models={"m": str(model.parent)})
    assert gguf(ModelRef(id="m"), at) == model
    (model.parent / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(SiteError, match="2 GGUF files"):
        gguf(ModelRef(id="m"), at)


def test_of_a_model_in_parts_the_first(site: Make, tmp_path: Path) -> None:
    for part in (2, 1, 3):
        (tmp_path / f"m-0000{part}-of-00003.gguf").write_bytes(b"GGUF")
    assert gguf(ModelRef(id="m"), site(models={"m": str(tmp_path)})).name == "m-00001-of-00003.gguf"


def test_the_draft_model_is_found_as_the_model_is(config: Make, site: Make, model: Path) -> None:
    asked = config("llamacpp", args={"model-draft": "d"})
    argv = LlamaCpp().command(asked, site(models={"org/model": str(model), "d": str(model)}), TARGET, ()).argv
    assert argv[argv.index("--model-draft") + 1] == str(model)


def test_flags_that_are_ours(config: Make, site: Make) -> None:
    with pytest.raises(SuiteError, match="`port` is set by gpuserve"):
        LlamaCpp().command(config("llamacpp", args={"port": 1}), site(), TARGET, ())


# --- api ---


def test_completions_with_token_ids_and_without_a_cache(config: Make, workload: Make, site: Make) -> None:
    api = LlamaCpp().api(config("llamacpp"), workload())
    assert (api.path, api.token_ids, api.extra) == ("/v1/completions", True, {"cache_prompt": False})
    assert not api.keep_alive, "llama.cpp closes after each stream"
    assert LlamaCpp().api(config("llamacpp"), workload(cache="warm")).extra == {}
    assert LlamaCpp().api(config("llamacpp"), workload(api="chat")).path == "/v1/chat/completions"
    with pytest.raises(SuiteError, match="no api 'generate'"):
        LlamaCpp().api(config("llamacpp"), workload(api="generate"))


def test_vocabulary_of_the_config_beside_the_file(
    config: Make, workload: Make, site: Make, model: Path
) -> None:
    (model.parent / "config.json").write_text('{"vocab_size": 777}')
    at = site(models={"org/model": str(model)})
    assert LlamaCpp().api(config("llamacpp"), workload(), at).vocabulary == 777


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, False),
        ({"spec-type": "none"}, False),
        ({"spec-type": "ngram-mod"}, True),
        ({"model-draft": "d"}, True),
    ],
)
def test_speculative(config: Make, args: dict[str, Any], expected: bool) -> None:
    assert LlamaCpp().speculative(config("llamacpp", args=args)) is expected


# --- control calls ---


def test_counters_of_a_real_server(stub: Stub) -> None:
    stub.metrics("llamacpp-11549.txt")
    found = LlamaCpp().counters(stub.target)
    assert found is not None
    assert (found.generated_tokens, found.prompt_tokens, found.cached_tokens) == (6848, 934, 2330)
    assert (found.verify_passes, found.accepted_tokens) == (0, 0)
    assert accept_length(found, found) is None, "no pass, no length"


def test_accept_length(stub: Stub) -> None:
    """610 of 3 x 205 draft tokens accepted: seen with a model that is its own draft."""
    text = "llamacpp:spec_decode_num_drafts_total {}\nllamacpp:spec_decode_num_accepted_tokens_total {}\n"
    stub.answers["/metrics"] = [(200, text.format(0, 0)), (200, text.format(205, 610))]
    before, after = LlamaCpp().counters(stub.target), LlamaCpp().counters(stub.target)
    assert accept_length(before, after) == pytest.approx(1 + 610 / 205)


@pytest.mark.parametrize("status", [404, 501])
def test_counters_without_metrics(stub: Stub, status: int) -> None:
    stub.answers["/metrics"] = [(status, "")]
    assert LlamaCpp().counters(stub.target) is None


def test_truncated_requests_spoil_a_round(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = "0.03.1 I slot      release: id  7 | task 0 | stop processing: n_tokens = 1024, truncated = {}\n"
    log.write_text(line.format(0))
    assert LlamaCpp().round_warnings(log, 0, log.stat().st_size) == ([], [])
    log.write_text(line.format(1))
    invalid, _ = LlamaCpp().round_warnings(log, 0, log.stat().st_size)
    assert "1 requests were truncated" in invalid[0]


# --- the launcher ---


def test_flags_become_fields() -> None:
    words = ["--ctx-size", "4096", "--parallel=8", "--metrics", "--no-slots", "--alias", "a,b"]
    assert list(llamacpp_server.settings(words)) == [
        ("n_ctx", 4096),
        ("n_parallel", 8),
        ("endpoint_metrics", True),
        ("endpoint_slots", False),
        ("model_alias", {"a", "b"}),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-such-flag"], "invalid argument: --no-such-flag"),
        (["-m", "x"], "invalid argument: -m"),
        (["--ctx-size", "many"], "invalid value 'many'"),
        (["--ctx-size"], "invalid value ''"),
    ],
)
def test_what_it_does_not_know_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(llamacpp_server.Refused, match=said):
        list(llamacpp_server.settings(words))


def test_it_imports_nothing_of_ours() -> None:
    """It runs in the engine's interpreter, which need not have this package."""
    source = Path(llamacpp_server.__file__).read_text()
    lines = [line for line in source.splitlines() if line.lstrip().startswith(("import ", "from "))]
    assert not [line for line in lines if "from ." in line or "pytest_gpuserve" in line]


@pytest.mark.skipif(not importlib.util.find_spec("xllamacpp"), reason="xllamacpp is not installed")
def test_every_field_of_the_table_exists() -> None:
    """What xllamacpp renames must be noticed here and not in somebody's run."""
    import xllamacpp

    for flag, (field, _, _) in llamacpp_server.FLAGS.items():
        holder: Any = xllamacpp.CommonParams()
        for name in field.split("."):
            assert hasattr(holder, name), flag
            holder = getattr(holder, name)
    asked = "--cache-type-v q8_0 --flash-attn off --spec-type ngram-simple,draft-simple --threads 3"
    found = llamacpp_server.parameters(asked.split())
    assert (found.cache_type_v, found.cpuparams.n_threads) == (xllamacpp.ggml_type.GGML_TYPE_Q8_0, 3)
    assert [kind.name.rpartition("_TYPE_")[2] for kind in found.speculative.types] == [
        "NGRAM_SIMPLE",
        "DRAFT_SIMPLE",
    ]


def test_made_models_are_known_to_every_engine() -> None:
    assert set(MODELS) == {"gpuserve-tiny", "gpuserve-small"}
