"""What a server's environment is made of."""

from __future__ import annotations

import sys

import pytest

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.errors import StartFailed
from pytest_gpuserve.model import Config, ModelRef, Place
from pytest_gpuserve.serving import environment


def config(**changes: object) -> Config:
    fields: dict[str, object] = {
        "id": "a",
        "place": Place("suite.yaml", 1),
        "engine": "sglang",
        "model": ModelRef(id="m"),
        "args": {},
    }
    return Config(**(fields | changes))  # type: ignore[arg-type]


def test_pytests_own_variables_do_not_reach_the_server() -> None:
    ours = {"PATH": "/bin", "PYTEST_XDIST_WORKER": "gw0", "PYTEST_CURRENT_TEST": "x", "HOME": "/h"}
    result, _ = environment.compose(ours, {"HOME": None, "NCCL_DEBUG": "WARN"}, temporary="/tmp/gs-1")
    assert not [name for name in result if name.startswith("PYTEST_")]
    assert (result["PATH"], result["NCCL_DEBUG"]) == ("/bin", "WARN")
    assert "HOME" not in result
    assert (result["SPT_NOENV"], result["PYTHONUNBUFFERED"]) == ("1", "1")


def test_a_private_temporary_folder_that_spares_the_compile_cache() -> None:
    result, temporary = environment.compose({}, {}, temporary="/tmp/gs-1")
    assert result["TMPDIR"] == temporary == "/tmp/gs-1"
    assert not result["TORCHINDUCTOR_CACHE_DIR"].startswith("/tmp/gs-1")
    result, _ = environment.compose({"TORCHINDUCTOR_CACHE_DIR": "/cache"}, {}, temporary="/tmp/gs-1")
    assert result["TORCHINDUCTOR_CACHE_DIR"] == "/cache"


def test_a_suites_own_temporary_folder_is_not_ours_to_delete() -> None:
    result, temporary = environment.compose({}, {"TMPDIR": "/scratch"}, temporary="/tmp/gs-1")
    assert result["TMPDIR"] == "/scratch"
    assert temporary is None


def test_a_variable_to_pass_on_that_is_not_set() -> None:
    environment.demand(config(env_from=("HF_TOKEN",)), {"HF_TOKEN": "x"})
    with pytest.raises(StartFailed, match="env_from: not set in the environment: HF_TOKEN, OTHER") as caught:
        environment.demand(config(env_from=("HF_TOKEN", "OTHER")), {})
    assert caught.value.failure is not None
    assert caught.value.failure.environment


def test_what_goes_into_the_record() -> None:
    env = {"NCCL_ALGO": "Tree", "PATH": "/bin", "MINE": "1", "SITES": "2", "SGLANG_X": "3", "HF_TOKEN": "t"}
    site = Site(python=sys.executable, env={"SITES": "2"})
    found = environment.telling(env, config(env={"MINE": "1"}), site)
    assert found == {"HF_TOKEN": "t", "MINE": "1", "NCCL_ALGO": "Tree", "SGLANG_X": "3", "SITES": "2"}
