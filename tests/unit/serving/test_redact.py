"""Secrets go by value, wherever they are; what only looks like one stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.serving.redact import Redactor

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = 'hf_ab"c/d+e=12345'


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {TOKEN}",
        "token=hf_ab%22c%2Fd%2Be%3D12345&x=1",
        '{"token": "hf_ab\\"c/d+e=12345"}',
        f"ServerArgs(api_key={TOKEN!r})",
    ],
)
def test_every_form_of_a_secret_is_hidden(text: str) -> None:
    clean = Redactor([TOKEN]).text(text)
    assert "12345" not in clean
    assert "***" in clean


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "GITHUB_PAT",
        "MYTOKEN",
        "hf_token",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert Redactor([], {name: "correct-horse"}).text("a correct-horse b") == "a *** b"


@pytest.mark.parametrize(
    "name", ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY", "PATH", "SECRETARY_NAME_X"]
)
def test_names_of_no_secrets(name: str) -> None:
    assert Redactor([], {name: "correct-horse"}).text("a correct-horse b") == "a correct-horse b"


def test_a_short_value_is_hidden_in_its_own_place_only() -> None:
    redactor = Redactor(["1"], {"CACHE_KEY": "0"})
    assert redactor.text("10 tokens in 1 s") == "10 tokens in 1 s"
    assert redactor.data({"CACHE_KEY": "0", "n": "0"}) == {"CACHE_KEY": "***", "n": "0"}
    assert redactor.words(["serve", "1", "10"]) == ["serve", "***", "10"]


def test_structures_are_cleaned_through() -> None:
    redactor = Redactor([TOKEN])
    data = {"args": [{"env": f"X={TOKEN}"}, 5, None], "api_key": "whatever", "tokens": 7}
    assert redactor.data(data) == {"args": [{"env": "X=***"}, 5, None], "api_key": "***", "tokens": 7}


def test_a_command_line() -> None:
    redactor = Redactor([TOKEN])
    argv = ["serve", "--api-key", "k", "--port", "1", "--api-key=kk", f"--x={TOKEN}", "--api-key-file", "f"]
    assert redactor.words(argv, {"api-key"}) == [
        *("serve", "--api-key", "***", "--port", "1", "--api-key=***", "--x=***", "--api-key-file", "f")
    ]


def test_without_secrets_nothing_changes() -> None:
    assert Redactor(["", ""]).text("a  b") == "a  b"


def test_a_file_is_cleaned_in_place(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(f"api_key='{TOKEN}' \xff \n".encode("latin-1") + b"rest\n" + TOKEN.encode())
    size = log.stat().st_size
    assert Redactor([TOKEN]).file(log) == 2
    stars = b"*" * len(TOKEN)
    assert log.read_bytes() == b"api_key='" + stars + b"' \xff \nrest\n" + stars
    assert log.stat().st_size == size


def test_a_file_without_secrets_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"")
    assert Redactor([TOKEN]).file(log) == 0
    assert Redactor([]).file(tmp_path / "there-is-none") == 0
