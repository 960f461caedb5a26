"""What is changed about a config so that its start is cheap, and what is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Rehearsal, Rehearses, Site
from pytest_gpuserve.engines.few_layers import few_layers
from pytest_gpuserve.engines.registry import find
from pytest_gpuserve.model import Config, ModelRef, Place

if TYPE_CHECKING:
    from pathlib import Path

FLAT = {"num_hidden_layers": 32}
NESTED = {"model_type": "kimi_k25", "text_config": {"num_hidden_layers": 61, "first_k_dense_replace": 1}}
FLAG = "json-model-override-args"


def rehearsal(
    folder: Path,
    settings: dict[str, Any] | None,
    version: str = "0.5.23",
    *,
    engine: str = "sglang",
    whole: bool = False,
    own: dict[str, Any] | None = None,
    **args: Any,
) -> Rehearsal:
    """Of a config with these flags, `own` its own ones, whose model has this config.json."""
    if settings is not None:
        (folder / "config.json").write_text(json.dumps(settings))
    config = Config(
        id="c",
        place=Place("s.yaml", 1),
        engine=engine,
        model=ModelRef(id="owner/name"),
        args={**{name.replace("_", "-"): value for name, value in args.items()}, **(own or {})},
        own_args=frozenset(own or {}),
        env={"NCCL_ALGO": "Tree"},
    )
    site = Site(python="python", models={"owner/name": str(folder)} if settings is not None else {})
    found = find(engine)
    assert isinstance(found, Rehearses)
    made = found.rehearsal(config, site, version, whole=whole)
    assert (made.config.env, made.config.own_args, made.config.id) == (config.env, config.own_args, "c")
    assert all(made.config.args[name] == value for name, value in (own or {}).items())
    return made


def test_random_weights_and_few_layers(tmp_path: Path) -> None:
    made = rehearsal(tmp_path, FLAT, "0.5.9", tp_size=8, own={"moe-a2a-backend": "deepep"})
    assert made.config.args == {
        "tp-size": 8,
        "moe-a2a-backend": "deepep",
        "load-format": "dummy",
        FLAG: {"num_hidden_layers": 4},
    }
    assert made.changes == (
        "--load-format dummy: random weights, none are read",
        "--json-model-override-args with num_hidden_layers 4, of 32",
    )


@pytest.mark.parametrize(("version", "cut"), [("0.5.16", False), ("0.5.19", True), ("0.5.23.post1", True)])
def test_nested_settings_are_only_changed_by_versions_that_merge(
    tmp_path: Path, version: str, cut: bool
) -> None:
    made = rehearsal(tmp_path, NESTED, version)
    assert made.config.args.get(FLAG) == ({"text_config": {"num_hidden_layers": 4}} if cut else None)
    assert ("text_config.num_hidden_layers 4, of 61" in made.changes[1]) is cut
    if not cut:
        assert made.changes[1].startswith("all layers: they stand in the model's text_config")


@pytest.mark.parametrize(
    ("why", "asked"),
    [
        ("what is documented is about memory", {"whole": True}),
        ("a draft model reads from certain ones", {"speculative_algorithm": "EAGLE3"}),
    ],
)
def test_all_layers_stay_where_they_matter(tmp_path: Path, why: str, asked: dict[str, Any]) -> None:
    made = rehearsal(tmp_path, FLAT, **asked)
    assert FLAG not in made.config.args
    assert made.changes[1] == f"all layers: {why}"


def test_what_the_config_sets_itself_stays(tmp_path: Path) -> None:
    own = {"load-format": "sharded_state", FLAG: {"rope_theta": 1}}
    made = rehearsal(tmp_path, FLAT, own=own)
    assert made.config.args == own
    assert "load-format stays" in made.changes[0]
    assert "which stays" in made.changes[1]


@pytest.mark.parametrize("written", [{"rope_theta": 1}, '{"rope_theta": 1}'])
def test_what_the_suite_sets_for_all_is_kept_beside_ours(tmp_path: Path, written: Any) -> None:
    made = rehearsal(tmp_path, FLAT, load_format="auto", json_model_override_args=written)
    assert made.config.args == {"load-format": "dummy", FLAG: {"rope_theta": 1, "num_hidden_layers": 4}}


def test_a_model_that_is_not_here_keeps_its_layers_and_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "nothing"))
    made = rehearsal(tmp_path, None)
    assert made.config.args == {"load-format": "dummy"}
    assert "config.json of owner/name, which is not on this host" in made.changes[1]
    assert "the settings and the tokenizer of owner/name" in made.changes[2]


def test_vllm_has_another_flag(tmp_path: Path) -> None:
    made = rehearsal(tmp_path, FLAT, "0.9.0", engine="vllm")
    assert made.config.args == {"load-format": "dummy", "hf-overrides": {"num_hidden_layers": 4}}


def test_engines_without_a_cheap_start_say_nothing() -> None:
    assert not isinstance(find("llamacpp"), Rehearses)
    assert not isinstance(find("openai"), Rehearses)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"num_hidden_layers": 61, "first_k_dense_replace": 3}, 5),
        ({"num_hidden_layers": 48, "full_attention_interval": 8}, 8),
        ({"num_hidden_layers": 12, "layer_types": ["a"] * 5 + ["b"] * 7}, 6),
        ({"num_hidden_layers": 4}, None),
        ({"num_hidden_layers": 8, "widths": list(range(8))}, None),
        ({"n_layer": 32}, None),
        ({}, None),
    ],
)
def test_every_kind_of_layer_stays(settings: dict[str, Any], kept: int | None) -> None:
    found = few_layers(settings)
    assert (found.layers if found else None) == kept


def test_lists_with_an_item_a_layer_are_cut_too() -> None:
    found = few_layers({"num_hidden_layers": 8, "layer_types": list("abababab"), "architectures": ["X"]})
    assert found is not None
    assert found.override == {"num_hidden_layers": 4, "layer_types": list("abab")}


def test_pipeline_stages_get_two_layers_each(tmp_path: Path) -> None:
    made = rehearsal(tmp_path, FLAT, pp_size=4)
    assert made.config.args[FLAG] == {"num_hidden_layers": 8}
