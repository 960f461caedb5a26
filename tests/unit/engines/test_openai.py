from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Attaches
from pytest_gpuserve.engines.openai import OpenAI, target_of
from pytest_gpuserve.engines.registry import find, names
from pytest_gpuserve.errors import InputError, SiteError, SuiteError
from pytest_gpuserve.load.api import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://127.0.0.1:8000", Target(host="127.0.0.1", port=8000)),
        ("http://127.0.0.1:8000/v1/", Target(host="127.0.0.1", port=8000)),
        ("http://localhost", Target(host="localhost", port=80)),
        ("https://[::1]:8443", Target(host="::1", port=8443, tls=True)),
    ],
)
def test_urls(url: str, target: Target) -> None:
    assert target_of(url) == target


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://host", "http://host:port", "http://host/api", "http://user@host", ""]
)
def test_what_is_no_such_url(url: str) -> None:
    with pytest.raises(InputError):
        target_of(url)


def test_the_command_line_before_the_suite_before_the_site(config: Make, site: Make) -> None:
    written = config("openai", args={"url": "http://suite:1"})
    local = {"url": "http://local:2"}
    target = OpenAI().target
    assert target(written, site(options=local, url="http://given:3")).host == "given"
    assert target(written, site(options=local)).host == "suite"
    assert target(config("openai"), site(options=local)).host == "local"
    with pytest.raises(SuiteError, match=r"^s\.yaml:1: .*where does the server run"):
        target(config("openai"), site())


def test_the_key_comes_from_the_environment_where_the_suite_passes_it_on(
    config: Make, site: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123456")
    at = site(url="http://host:1")
    passed = config("openai", env_from=("OPENAI_API_KEY",))
    assert OpenAI().target(passed, at).headers == {"Authorization": "Bearer k-123456"}
    assert OpenAI().target(config("openai"), at).headers == {}


def test_how_the_server_speaks_is_written_under_args(config: Make, workload: Make) -> None:
    plain = OpenAI().api(config("openai"), workload())
    assert (plain.path, plain.token_ids, plain.promises_done) == ("/v1/completions", False, True)
    assert plain.keep_alive is None, "nobody has said whether it keeps a connection"
    said = OpenAI().api(config("openai", args={"keep-alive": True}), workload())
    assert said.keep_alive is True
    args = {"token-ids": True, "vocabulary": 5000, "done": False, "keep-alive": False, "ignore-eos": False}
    spoken = OpenAI().api(config("openai", args=args), workload(api="chat"))
    assert (spoken.path, spoken.vocabulary, spoken.promises_done) == ("/v1/chat/completions", 5000, False)
    assert (spoken.keep_alive, spoken.ignore_eos) == (False, False)


@pytest.mark.parametrize("args", [{"tp-size": 8}, {"vocabulary": "many"}])
def test_other_args_are_errors_that_list_what_there_is(config: Make, workload: Make, args: Any) -> None:
    with pytest.raises(SuiteError, match=r"there are: url, token-ids, vocabulary"):
        OpenAI().api(config("openai", args=args), workload())


def test_it_has_no_generate(config: Make, workload: Make) -> None:
    with pytest.raises(SuiteError, match=r"no api .generate., only completions and chat"):
        OpenAI().api(config("openai"), workload(api="generate"))


def test_it_never_starts_anything(config: Make, site: Make) -> None:
    with pytest.raises(SiteError, match="never started"):
        OpenAI().command(config("openai"), site(), Target(host="h", port=1), ())


def test_it_alone_attaches_by_itself() -> None:
    assert [name for name in names() if isinstance(find(name), Attaches)] == ["openai"]
