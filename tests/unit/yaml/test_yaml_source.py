from __future__ import annotations

import json
import math
import os
import time
from itertools import pairwise
from pathlib import Path  # noqa: TC003
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from pytest_gpuserve.errors import BaselineError, InputError, SuiteError
from pytest_gpuserve.yaml_source import Limits, Source, did_you_mean, load, loads, path_text


def read(text: str, **limits: int) -> Source:
    return loads(text, "f.yaml", SuiteError, limits=Limits(**limits))


def complaint(text: str, **limits: int) -> str:
    with pytest.raises(SuiteError) as caught:
        read(text, **limits)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("False", False),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-12", -12),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2027-03-31", "2027-03-31"),
        ("2027-03-31T12:00:00Z", "2027-03-31T12:00:00Z"),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("12.0", 12.0),
        ('"12.0"', "12.0"),
        ("'true'", "true"),
        ("0.5.21", "0.5.21"),
        ("15%", "15%"),
        ("'>=9.0'", ">=9.0"),
        ("-", None),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(written: str, value: object) -> None:
    if written == "-":
        assert read("a:\n-").data == {"a": [None]}
        return
    found = read(f"a: {written}").data["a"]
    assert (found, type(found)) == (value, type(value))


def test_nan_is_read_and_left_to_the_reader() -> None:
    assert math.isnan(read("a: .nan").data["a"])


def test_keys_are_text_as_written() -> None:
    assert read("on: 1\n8: 2\nnull: 3\n1.50: 4").data == {"on": 1, "8": 2, "null": 3, "1.50": 4}


# YAML has no surrogate pairs and no control characters, and folds other line ends than \n.
TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Zl", "Zp", "Cn"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT.filter(bool), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_reads_as_itself(data: Any) -> None:
    assert read(json.dumps(data, ensure_ascii=False)).data == data


def test_places_are_those_of_keys_and_items() -> None:
    source = read("# comment\na:\n  b:\n    c: 1\nlist:\n  - x: 1\n    y:\n      2\n  -\n    z: 3\n")
    assert source.place().line == 2
    assert source.place("a", "b").line == 3
    assert source.place("a", "b", "c").line == 4
    assert source.place("list", 0, "y").line == 7
    assert source.place("list", 1).line == 10
    assert str(source.place("a", "nothing", "here")) == "f.yaml:2"


def test_aliases_and_merge_keys() -> None:
    source = read(
        "base: &b {x: 1, y: 2}\nsame: *b\none: {<<: *b, y: 3}\n"
        "two:\n  <<: [*b, {y: 9, z: 4}]\n  w: 5\nquoted: {'<<': 1}\n"
    )
    assert source.data["same"] == {"x": 1, "y": 2}
    assert source.data["one"] == {"x": 1, "y": 3}
    assert source.data["two"] == {"x": 1, "y": 2, "z": 4, "w": 5}
    assert source.data["quoted"] == {"<<": 1}
    assert source.place("same").line == 2
    assert source.place("one", "x").line == 1
    assert source.place("one", "y").line == 3
    assert source.place("two", "z").line == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: the key 'a' is given twice (first on line 1)"),
        ("a: {b: 1, b: 2}", "f.yaml:1: the key 'b' is given twice (first on line 1)"),
        ("a:\n\tb: 1", "f.yaml:2: a tab in the indentation; YAML is indented with spaces"),
        ("a:\n  - b\n\t- c", "f.yaml:3: a tab in the indentation; YAML is indented with spaces"),
        ("a: @x", "(text that begins with '@' must be quoted)"),
        (
            "a: >=9.0",
            "f.yaml:1: not YAML: while scanning a block scalar: did not find expected comment or line "
            "break (text that begins with '>' or '|' must be quoted)",
        ),
        ("a: b: c", "(text that holds ': ' must be quoted)"),
        ("a: [1, 2", "f.yaml:2: not YAML: while parsing a flow sequence"),
        ("a: 'open", "not YAML: while scanning a quoted scalar"),
        ("a: \x01", "f.yaml:1: not YAML: control characters are not allowed"),
        ("a: 1\n---\nb: 2", "f.yaml:2: a second document (`---`); a file holds one"),
        ("a: !!python/object:os.system x", "f.yaml:1: the tag"),
        ("a: !!str 1", "f.yaml:1: the tag"),
        ("\n? [1, 2]\n: 3", "f.yaml:2: a key that is not a plain word or string"),
        ('"": 1', "f.yaml:1: an empty key"),
        ("a: *anchr\nb: &anchor 1", "f.yaml:1: the alias *anchr has no anchor"),
        ("b: &anchor 1\na: *anchr", "f.yaml:2: the alias *anchr has no anchor; did you mean 'anchor'?"),
        ("a: &x [*x]", "f.yaml:1: the alias *x stands inside what it refers to"),
        ("a: {<<: 1}", "`<<` takes a mapping or a list of mappings"),
        ("a: {<<: {b: 1}, <<: {c: 1}}", "the key '<<' is given twice"),
        ("a: " + "9" * 5000, "f.yaml:1: a number of too many digits"),
        ('a: 1\nb: "x\\0y"', "f.yaml:2: a NUL character"),
    ],
)
def test_what_is_refused_says_where_and_why(text: str, message: str) -> None:
    assert message in complaint(text)


def test_a_tab_between_values_is_harmless() -> None:
    assert read("a:\t1").data == {"a": 1}


def test_bombs_end_early() -> None:
    names = "abcdefghi"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{inner}: &{inner} [{','.join([f'*{outer}'] * 9)}]\n" for outer, inner in pairwise(names)
    )
    start = time.process_time()
    assert "once its aliases are followed" in complaint(bomb)
    assert "f.yaml:1: nested more than 40 deep" in complaint("- " * 10_000 + "x")
    assert "f.yaml:1: n" in complaint("[" * 1_000_000)
    assert "more than 50 values" in complaint("\n".join(f"- {i}" for i in range(60)), nodes=50)
    assert time.process_time() - start < 5


def test_merge_keys_count_like_aliases() -> None:
    base = "a: &a {" + ", ".join(f"k{i}: {i}" for i in range(30)) + "}\n"
    assert "more than 100 values" in complaint(base + "b: {<<: [*a, *a]}", nodes=100)


def test_nothing_is_none() -> None:
    assert read("").data is None
    assert read("# only this\n").data is None
    assert str(read("").error((), "is empty")) == "f.yaml:1: is empty"


class TestFiles:
    def test_a_place_is_relative_to_the_current_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub/f.yaml").write_text("a: 1")
        assert load(tmp_path / "sub/f.yaml").file == "sub/f.yaml"
        monkeypatch.chdir(tmp_path / "sub")
        (tmp_path / "g.yaml").write_text("a: 1")
        assert load(tmp_path / "g.yaml").file == str(tmp_path / "g.yaml")

    def test_the_caller_chooses_the_error(self, tmp_path: Path) -> None:
        with pytest.raises(BaselineError, match=r"f\.yaml:1: does not exist"):
            load(tmp_path / "f.yaml", BaselineError)

    def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="is not a file"):
            load(tmp_path)

    def test_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.yaml")
        with pytest.raises(InputError, match="is not a file"):
            load(tmp_path / "pipe.yaml")

    def test_size_and_encoding(self, tmp_path: Path) -> None:
        path = tmp_path / "f.yaml"
        path.write_bytes(b"a: 1\nb: \xff\n")
        with pytest.raises(InputError, match=r"f\.yaml:2: is not UTF-8 \(byte 0xff\)"):
            load(path)
        path.write_bytes(b"\xef\xbb\xbfa: \xc3\xa9")
        assert load(path).data == {"a": "é"}
        with pytest.raises(InputError, match="is larger than 1 KiB"):
            load(
                path.with_name("g.yaml") if path.write_text("#" * 2000) == 0 else path,
                limits=Limits(size=1024),
            )

    def test_cut_in_half(self, tmp_path: Path) -> None:
        path = tmp_path / "f.yaml"
        path.write_text("a:\n  b: {c: [1, 2,")
        with pytest.raises(InputError, match=r"f\.yaml:\d: not YAML"):
            load(path)


class Inner(Struct, forbid_unknown_fields=True, kw_only=True):
    number: int = 0
    kind: Literal["start", "serve"] = "start"
    either: str | int | None = None
    name: Annotated[str, Meta(min_length=1)] = "n"
    pair: Annotated[list[int], Meta(max_length=2)] = []


class Outer(Struct, forbid_unknown_fields=True, kw_only=True):
    items: list[Inner] = []
    named: dict[str, Inner] = {}
    word: str


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word: x\nitms: []", "f.yaml:2: itms: unknown key; did you mean 'items'?"),
        ("word: x\nitems:\n- {}\n- numbr: 1", "f.yaml:4: items[1].numbr: unknown key; did you mean"),
        ("word: x\nnamed:\n  a: {}\n  b:\n    kind: strat",
         "f.yaml:5: named.b.kind: 'strat' is none of start, serve; did you mean 'start'?"),
        ("word: x\nnamed:\n  a: {}\n  b: {nmber: 1}", "f.yaml:4: named.b.nmber: unknown key; did you"),
        ("word: x\nnamed: {a: 3}", "f.yaml:2: named.a: expected a mapping, got a whole number"),
        ("word: x\nitems: [{either: []}]", "items[0].either: expected a whole number or text, got a list"),
        ("word: x\nitems: [{number: true}]", "items[0].number: expected a whole number, got true or false"),
        ("word: x\nitems: [{name: ''}]", "items[0].name: expected text that is not empty"),
        ("word: x\nitems: [{pair: [1, 2, 3]}]", "items[0].pair: expected a list of length <= 2"),
        ("word: 1", "f.yaml:1: word: expected text, got a whole number"),
        ("items: []", "f.yaml:1: the key 'word' is missing"),
        ("[]", "f.yaml:1: expected a mapping, got a list"),
    ],
)  # fmt: skip
def test_types_are_explained_at_their_key(text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read(text).convert((), Outer)
    assert message in str(caught.value)


def test_near_words_ignore_case_and_dashes() -> None:
    assert did_you_mean("Compare-To", ["compare_to", "gate"]) == "; did you mean 'compare_to'?"
    assert did_you_mean("zebra", ["compare_to", "gate"]) == ""


def test_paths_read_as_people_write_them() -> None:
    assert path_text(("configs", 2, "xfail", "kind")) == "configs[2].xfail.kind"
    assert path_text(("configs", 2, "a\nb")) == r"configs[2].'a\nb'", "an error is one line"
