from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_gpuserve.gate.emit import Flow, dump, scalar
from pytest_gpuserve.yaml_source import loads

# NUL is refused when it is read: no flag, variable or path can hold it.
text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20).filter(
    lambda word: "\0" not in word
)
keys = text.filter(lambda key: key != "")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4).map(Flow)
    ),
    max_leaves=12,
)


def plain(value: Any) -> Any:
    if isinstance(value, Flow):
        return plain(value.content)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


@given(st.dictionaries(keys, values, max_size=5))
@example({"a": "1e5", "b": "0o17", "c": "yes", "d": "null", "e": "2026-11-29", "f": "0.5.15", "g": ""})
@example({"a": "- x", "b": "a: b", "c": "a #b", "d": "...", "e": "---", "f": "@a", "g": "%a", "h": "a,b"})
@example({"a": Flow({"b": "x, y", "c": "[z]"}), "d": ["x, y"], "e": "\x85\u2028\x01\U0001f600\ufeff"})
def test_what_is_written_reads_back_the_same(data: dict[str, Any]) -> None:
    assert loads(dump(data), "x.yaml").data == (plain(data) or None)


@pytest.mark.parametrize("word", ["moonshotai/Kimi-K2.5", "0.5.15", "NVIDIA H200", "580.95.05", "tp-size"])
def test_ordinary_words_need_no_quotes(word: str) -> None:
    assert scalar(word) == word


def test_text_that_looks_like_a_number_is_quoted() -> None:
    assert scalar("1e5") == '"1e5"'
    assert scalar("0.5") == '"0.5"'
