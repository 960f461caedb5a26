from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.check.models import check_models
from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.model import Config, ModelRef, Place

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_gpuserve.check.finding import Finding


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return tmp_path / "hf" / "hub"


def check(model: str, args: dict[str, Any] | None = None, **models: str) -> list[Finding]:
    config = Config(
        id="one", place=Place("s.yaml", 1), engine="sglang", model=ModelRef(id=model), args=args or {}
    )
    return list(check_models(config, Site(python="python", models=models)))


def model_folder(folder: Path, *shards: str, index: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    for shard in shards:
        (folder / shard).touch()
    if index:
        table = {"weight_map": {f"layer.{n}": name for n, name in enumerate(index)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(table))
    return folder


def test_a_complete_folder(tmp_path: Path) -> None:
    folder = model_folder(
        tmp_path / "m", "a.safetensors", "b.safetensors", index=("a.safetensors", "b.safetensors")
    )
    assert check(str(folder)) == []
    assert check("llama1b", llama1b=str(folder)) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (found,) = check("llama1b", llama1b=str(tmp_path / "gone"))
    assert found.severity == "error" and "gone, which does not exist" in found.text


def test_a_folder_without_config(tmp_path: Path) -> None:
    (found,) = check(str(tmp_path))
    assert "has no config.json" in found.text


def test_a_download_that_did_not_finish(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m", "a.safetensors", index=("a.safetensors", "b.safetensors"))
    (folder / "b.safetensors").symlink_to(tmp_path / "blobs" / "missing")
    (found,) = check(str(folder))
    assert "lacks 1 of its weight files: b.safetensors" in found.text
    assert check(str(folder), {"load-format": "dummy"}) == []


def test_a_folder_without_weights(tmp_path: Path) -> None:
    assert "lacks" in check(str(model_folder(tmp_path / "m")))[0].text
    assert check(str(model_folder(tmp_path / "n", "model.gguf"))) == []


def test_a_name_on_the_hub(hub: Path) -> None:
    (found,) = check("moonshotai/Kimi-K2.5")
    assert found.severity == "note"
    assert f"would be fetched to {hub}, where" in found.text


def test_a_model_in_the_hubs_cache(hub: Path) -> None:
    snapshot = hub / "models--owner--name" / "snapshots" / "abc"
    model_folder(snapshot, "model.safetensors")
    refs = hub / "models--owner--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc\n")
    assert check("owner/name") == []


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (found,) = check("moonshotai/Kimi-K2.5")
    assert found.severity == "error" and "HF_HUB_OFFLINE forbids" in found.text


def test_neither_a_folder_nor_a_name_on_the_hub() -> None:
    (found,) = check("llama1b")
    assert found.severity == "error" and "gpuserve.local.yaml" in found.advice


def test_models_that_flags_name(tmp_path: Path) -> None:
    folder = str(model_folder(tmp_path / "m", "model.safetensors"))
    (found,) = check(folder, {"speculative-draft-model-path": str(tmp_path / "draft")})
    assert found.text.startswith("--speculative-draft-model-path: ")
    assert check(folder, {"speculative-draft-model-path": folder, "tokenizer-path": folder}) == []
    assert check(folder, {"speculative-draft-model-path": "s3://bucket/model"}) == []


def test_a_model_that_is_made_on_the_spot_is_not_made_for_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: object) -> None:
        raise AssertionError("made")

    monkeypatch.setattr("pytest_gpuserve.engines.tiny_model.folder", made)
    assert check("gpuserve-tiny") == []
