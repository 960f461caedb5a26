from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.model_folder import local_folder, locate, vocabulary
from pytest_gpuserve.errors import SiteError
from pytest_gpuserve.model import ModelRef

if TYPE_CHECKING:
    from pathlib import Path


def site(**models: str) -> Site:
    return Site(python="python", models=models)


def test_a_hub_name_is_left_to_the_engine() -> None:
    assert locate(ModelRef(id="org/model"), site()) == "org/model"


def test_a_mapped_name_becomes_its_folder(tmp_path: Path) -> None:
    assert locate(ModelRef(id="small"), site(small=str(tmp_path))) == str(tmp_path)


def test_a_mapped_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(
        SiteError, match=r"gpuserve\.local\.yaml maps the model 'small' to .*/gone, which does not"
    ):
        locate(ModelRef(id="small"), site(small=str(tmp_path / "gone")))


def test_a_folder_named_in_the_suite_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"the model is .*/gone, which does not exist"):
        locate(ModelRef(id=str(tmp_path / "gone")), site())


def test_the_cache_of_the_hub_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--org--model" / "refs").mkdir()
    (tmp_path / "models--org--model" / "refs" / "main").write_text("abc")
    assert local_folder(ModelRef(id="org/model"), None) == snapshot
    assert local_folder(ModelRef(id="org/model", revision="abc"), None) == snapshot
    assert local_folder(ModelRef(id="org/other"), None) is None


def model(folder: Path, config: dict[str, Any], special: list[int] | None = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if special is not None:
        added = {str(token): {"content": f"<{token}>"} for token in special}
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return folder


@pytest.mark.parametrize(
    ("config", "special", "expected"),
    [
        ({"vocab_size": 32000}, None, 32000),
        ({"text_config": {"vocab_size": 163840}}, None, 163840),
        ({"vocab_size": 128256}, [128000, 128009], 128000),
        ({"vocab_size": 131072}, [0, 1, 2, 999], 131072),  # special ones at the start leave the rest alone
        ({"vocab_size": 1000}, [1000, 1001], 1000),  # beyond the model's own vocabulary
        ({"model_type": "x"}, None, None),
    ],
)
def test_vocabulary_ends_where_special_tokens_begin(
    tmp_path: Path, config: dict[str, Any], special: list[int] | None, expected: int | None
) -> None:
    assert vocabulary(model(tmp_path, config, special)) == expected


def test_files_that_cannot_be_read_tell_nothing(tmp_path: Path) -> None:
    assert vocabulary(tmp_path) is None
    (tmp_path / "config.json").write_text("{")
    assert vocabulary(tmp_path) is None


@pytest.mark.parametrize("tokens", [None, [{"id": 1}], "x", {"ü": {}, "²": {}}])
def test_a_tokenizer_that_is_written_otherwise_tells_nothing(tmp_path: Path, tokens: Any) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 100}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))
    assert vocabulary(tmp_path) == 100
