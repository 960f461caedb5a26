from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuserve.errors import SiteError
from pytest_gpuserve.host import EngineSite, SiteFile, load_site


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")


def site(text: str, tmp_path: Path) -> SiteFile:
    (tmp_path / "gpuserve.local.yaml").write_text(text)
    return load_site(tmp_path, engines=["sglang", "vllm"])


def test_no_file_says_nothing(tmp_path: Path) -> None:
    assert load_site(tmp_path) == SiteFile()
    assert load_site(tmp_path).engine("sglang") == EngineSite()
    assert site("# nothing yet\n", tmp_path).engines == {}


def test_everything_it_can_say(tmp_path: Path) -> None:
    found = site(
        """
engines:
  sglang:
    python: venvs/sglang/bin/python
    build: patched
    env: {HF_HOME: /hub, EMPTY: ""}
    options: {entry: serve}
  vllm: {python: python3.12}
models:
  moonshotai/Kimi-K2.5: /models/kimi
  llama1b: models/llama1b
  home: ~/models/x
leases: ~/leases
""",
        tmp_path,
    )
    assert found.engine("sglang") == EngineSite(
        python=str(tmp_path / "venvs/sglang/bin/python"),
        build="patched",
        env={"HF_HOME": "/hub", "EMPTY": ""},
        options={"entry": "serve"},
    )
    assert found.engine("vllm") == EngineSite(python="python3.12")
    assert found.models == {
        "moonshotai/Kimi-K2.5": "/models/kimi",
        "llama1b": str(tmp_path / "models/llama1b"),
        "home": "/home/me/models/x",
    }
    assert found.leases == Path("/home/me/leases")


def test_the_link_of_an_interpreter_is_kept(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to("/usr/bin/env")
    found = site("engines: {sglang: {python: ./python}}", tmp_path)
    assert found.engine("sglang").python == str(tmp_path / "python")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engins: {}", "gpuserve.local.yaml:1: engins: unknown key; did you mean 'engines'?"),
        ("engines: {sglag: {}}", "1: engines.sglag: no such engine; did you mean 'sglang'?"),
        ("engines:\n  sglang: {pyton: x}", "2: engines.sglang.pyton: unknown key; did you mean 'python'?"),
        ("engines:\n  sglang:\n    env: {A: 1}", '3: engines.sglang.env.A: the value of a variable is '),
        ("engines: {sglang: {env: {A: }}}", 'engines.sglang.env.A: has no value; write ""'),
        ("engines: {sglang: {python: ' '}}", "engines.sglang.python: an empty path"),
        ("engines: {sglang: }", "engines.sglang: expected a mapping, got nothing"),
        ("models:\n  a: 1", "2: models.a: expected text, got a whole number"),
        ("models: {a: ''}", "models.a: an empty path"),
        ("models: {a: ~nobody-at-all/x}", "names the home of nobody"),
        ("models:\n\ta: b", "2: a tab in the indentation"),
        ("- a", "expected a mapping, got a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SiteError) as caught:
        site(text, tmp_path)
    assert str(caught.value).startswith("gpuserve.local.yaml:")
    assert message in str(caught.value)


def test_a_link_that_leads_nowhere_is_no_lack_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "gpuserve.local.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(SiteError, match="does not exist"):
        load_site(tmp_path)
