"""The models that are made on the spot. That real engines serve them is in tests/integration and tests/engines."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines import tiny_model
from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.model_folder import local_folder, locate, vocabulary
from pytest_gpuserve.engines.tiny_model.vocabulary import SPECIAL, spellings
from pytest_gpuserve.engines.tiny_model.vocabulary import vocabulary as made_vocabulary
from pytest_gpuserve.errors import EngineMissing, SiteError
from pytest_gpuserve.load.prompts import words
from pytest_gpuserve.model import ModelRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TINY = "gpuserve-tiny"
pytest.importorskip("gguf")
pytest.importorskip("safetensors")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model.make(TINY, folder)
    return folder


def tensors(folder: Path) -> dict[str, NDArray[np.float32]]:
    from safetensors.numpy import load_file

    found: dict[str, Any] = load_file(folder / "model.safetensors")
    return found


def test_the_same_bytes_every_time(made: Path, tmp_path: Path) -> None:
    tiny_model.make(TINY, tmp_path)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == sorted(file.name for file in made.iterdir())
    assert [(tmp_path / name).read_bytes() for name in files] == [
        (made / name).read_bytes() for name in files
    ]


def test_half_a_million_parameters_all_float32(made: Path) -> None:
    found = tensors(made)
    assert {str(tensor.dtype) for tensor in found.values()} == {"float32"}
    assert 400_000 < sum(tensor.size for tensor in found.values()) < 700_000


def test_the_gguf_has_the_same_weights(made: Path) -> None:
    import numpy as np
    from gguf import GGUFReader

    from pytest_gpuserve.engines.tiny_model.files import gguf_name

    reader = GGUFReader(made / tiny_model.GGUF)
    written = {tensor.name: tensor.data for tensor in reader.tensors}
    for name, tensor in tensors(made).items():
        assert np.array_equal(written.pop(gguf_name(name)), tensor), name
    assert not written


def test_the_constant_dimension(made: Path) -> None:
    """Nothing writes to it, and through it the output layer forbids what cannot be printed."""
    found = tensors(made)
    assert (found["model.embed_tokens.weight"][:, 0] == found["model.embed_tokens.weight"][0, 0]).all()
    for name in found:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            assert not found[name][0].any(), name
    forbidden = set(made_vocabulary().unspeakable())
    column = found["lm_head.weight"][:, 0]
    assert {number for number, value in enumerate(column) if value < 0} == forbidden
    assert {made_vocabulary().id(token) for token in SPECIAL} <= forbidden


def test_whatever_may_be_said_is_printable() -> None:
    known = made_vocabulary()
    byte = {letter: number for number, letter in enumerate(spellings())}
    said = set(range(len(known.tokens))) - set(known.unspeakable())
    for number in said:
        text = bytes(byte[letter] for letter in known.tokens[number]).decode("ascii")
        assert text and text.isprintable()


def test_the_tokenizer_reads_common_words_as_one_token(made: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(made / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == len(made_vocabulary().tokens) == 1024
    text = " " + " ".join(words()[:40])
    encoded = tokenizer.encode(text)
    assert len(encoded.ids) == 40
    assert tokenizer.decode(encoded.ids) == text
    everything = bytes(range(32, 127)).decode() + "\n\té…"
    assert tokenizer.decode(tokenizer.encode(everything).ids) == everything
    assert tokenizer.encode("<|im_end|>").ids == [made_vocabulary().id("<|im_end|>")]


def test_engines_read_the_folder(made: Path) -> None:
    assert vocabulary(made) == 1024
    assert json.loads((made / "config.json").read_text())["architectures"] == ["Qwen2ForCausalLM"]
    assert struct.unpack("<4s", (made / tiny_model.GGUF).read_bytes()[:4]) == (b"GGUF",)


# --- on demand ---


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_is_made_when_it_is_named_and_kept(cache: Path) -> None:
    site = Site(python="python")
    first = Path(locate(ModelRef(id=TINY), site))
    assert first.is_relative_to(cache) and (first / "config.json").is_file()
    stamp = (first / tiny_model.GGUF).stat().st_mtime_ns
    assert local_folder(ModelRef(id=TINY), site) == first
    assert (first / tiny_model.GGUF).stat().st_mtime_ns == stamp
    assert [file.name for file in first.parent.iterdir()] == [first.name], "no draft is left"


def test_the_site_may_give_the_name_to_another_folder(cache: Path, tmp_path: Path) -> None:
    site = Site(python="python", models={TINY: str(tmp_path)})
    assert locate(ModelRef(id=TINY), site) == str(tmp_path)
    assert not cache.exists()


def test_two_may_make_it_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tiny_model.make

    def slow(name: str, into: Path) -> None:
        monkeypatch.setattr(tiny_model, "make", real)
        tiny_model.folder(TINY)  # somebody else is faster
        real(name, into)

    monkeypatch.setattr(tiny_model, "make", slow)
    folder = tiny_model.folder(TINY)
    assert (folder / "config.json").is_file()
    assert len(list(folder.parent.iterdir())) == 1


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SiteError, match="XDG_CACHE_HOME moves it"):
        tiny_model.folder(TINY)


def test_without_the_packages_it_says_what_to_install(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "pytest_gpuserve.engines.tiny_model.files", raising=False)
    monkeypatch.delattr(tiny_model, "files", raising=False)
    with pytest.raises(EngineMissing, match=r"pip install 'pytest-gpuserve\[local\]'"):
        tiny_model.folder(TINY)
    assert not list((cache / "pytest-gpuserve").iterdir())
