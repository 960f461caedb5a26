from __future__ import annotations

import argparse

import pytest

from pytest_gpuserve.check.help_page import Flag, parse


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Every shape of option that SGLang has."""
    made = argparse.ArgumentParser(prog="sglang serve", description="Serve --no-flag-here a model.")
    add = made.add_argument
    add("--model-path", "--model", required=True, help="The path. Use --tp-size for more; see {a,b}.")
    add("--load-format", choices=["auto", "dummy", "a-very-long-choice-that-takes-a-line-of-its-own"])
    add("--trust-remote-code", action="store_true", help="Custom code.")
    add("-t", "--tp-size", "--tensor-parallel-size", type=int, default=1, help="Size.")
    add("--x", type=int, help="Short enough for one line.")
    add("--exactly-twenty-chars", help="The head fills its column.")
    add("--numa-node", type=int, nargs="+", help="Nodes.")
    add("--excluded", nargs="*", help="Prefixes.")
    add("--checksum", nargs="?", const="x", help="Optional.")
    add("--pair", nargs=2, help="Two.")
    add("--modules", nargs="*", choices=["q", "k", "all"], help="Modules.")
    add("--level", type=int, choices=[0, 1, 2], help="Level.")
    add("--fused", action=argparse.BooleanOptionalAction, help="Fused.")
    add("--old", action="store_true", help="Deprecated. Use --new-cuda-graph-backend-of-some-length instead.")
    add("--replaces", help="Note that this replaces the deprecated variable X.")
    add("--percent", type=float, metavar="P", help="A share of 100%%.")
    add("--silent", action="store_true")
    group = made.add_argument_group("more options", "Of which --none is described here.")
    group.add_argument("--grouped", choices=["x", "y"], default="x", help="In a group of its own.")
    return made


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_a_page_says_what_the_parser_takes(
    parser: argparse.ArgumentParser, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    found = {flag.name: flag for flag in parse(parser.format_help()).flags}
    for action in parser._actions:
        names = tuple(one[2:] for one in action.option_strings if one.startswith("--"))
        flag = found.pop(names[0])
        assert flag.names == names
        assert (flag.least, flag.most) == _numbers(action)
        assert flag.choices == tuple(str(one) for one in action.choices or ())
        assert flag.help.replace("- ", "-") == (action.help or "").replace("%%", "%")
    assert not found


def _numbers(action: argparse.Action) -> tuple[int, int | None]:
    match action.nargs:
        case 0:
            return 0, 0
        case None:
            return 1, 1
        case "+":
            return 1, None
        case "*":
            return 0, None
        case "?":
            return 0, 1
        case number:
            assert isinstance(number, int)
            return number, number


def test_deprecated_flags_are_those_that_say_so_of_themselves(parser: argparse.ArgumentParser) -> None:
    assert [flag.name for flag in parse(parser.format_help()).flags if flag.deprecated] == ["old"]


# From the page of SGLang 0.5.23, whose lines are 80 wide; the flags in between are cut out.
SGLANG = """\
usage: sglang serve [-h] --model-path MODEL_PATH
                    [--tokenizer-path TOKENIZER_PATH]
                    [--lora-target-modules [{q_proj,k_proj,all} ...]]

options:
  -h, --help            show this help message and exit
  --model-path MODEL_PATH, --model MODEL_PATH
                        The path of the model weights. This can be a local
                        folder or a Hugging Face repo ID.
  --load-format {auto,pt,safetensors,instanttensor,npcache,dummy,sharded_state,presharded,gguf,expert_pack,bitsandbytes}
                        The format of the model weights to load. "auto" will
                        try to load the weights in the safetensors format.
  --trust-remote-code   Whether or not to allow for custom models defined on
                        the Hub in their own modeling files.
  --lora-target-modules [{q_proj,k_proj,all} ...]
                        The union set of all target modules.
  --enable-tf32-matmul, --no-enable-tf32-matmul
                        Enable float32 matmuls to use Tensor cores.
  --cuda-graph-max-bs-decode CUDA_GRAPH_MAX_BS_DECODE
                        The largest batch.
  --cuda-graph-max-bs-prefill CUDA_GRAPH_MAX_BS_PREFILL
                        The largest batch.
  --disable-cuda-graph  Deprecated. Use --cuda-graph-
                        backend-{decode,prefill}=disabled instead.
"""


def test_a_page_of_sglang() -> None:
    page = parse(SGLANG)
    assert page.flags[2] == Flag(
        names=("load-format",),
        choices=(
            *("auto", "pt", "safetensors", "instanttensor", "npcache", "dummy"),
            *("sharded_state", "presharded", "gguf", "expert_pack", "bitsandbytes"),
        ),
        help='The format of the model weights to load. "auto" will try to load the weights in the '
        "safetensors format.",
    )
    modules = page.find("lora-target-modules").flag
    assert modules and (modules.choices, modules.least, modules.most) == (
        ("q_proj", "k_proj", "all"),
        0,
        None,
    )
    disabled = page.find("disable-cuda-graph").flag
    assert disabled and disabled.deprecated and disabled.switch
    assert disabled.help == "Deprecated. Use --cuda-graph-backend-{decode,prefill}=disabled instead."


@pytest.mark.parametrize(
    ("written", "kind", "name"),
    [
        ("model", "exact", "model"),  # a name of its own, though a prefix of model-path as well
        ("mod", "abbreviation", "model-path"),  # two names of one flag
        ("trust", "abbreviation", "trust-remote-code"),
        ("cuda-graph-max-bs", "ambiguous", ""),
        ("nope", "unknown", ""),
    ],
)
def test_names_are_found_as_argparse_finds_them(written: str, kind: str, name: str) -> None:
    found = parse(SGLANG).find(written)
    assert (found.kind, found.name) == (kind, name)
    if kind == "ambiguous":
        assert found.candidates == ("cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill")


def test_what_is_no_help_page() -> None:
    assert parse("").flags == ()
    assert parse("Traceback (most recent call last):\n  File 'x'\nImportError: libcuda.so.1\n").flags == ()
