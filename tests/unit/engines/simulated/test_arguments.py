from __future__ import annotations

import pytest

from pytest_gpuserve.engines.simulated.arguments import Refused, as_text, defaults, parse

OLD, NEW = "sglang-0.5.10", "sglang-0.5.14"
MODEL = ["--model-path", "m"]


@pytest.mark.parametrize("flags", [OLD, NEW])
def test_fields_are_read_and_the_rest_has_its_default(flags: str) -> None:
    fields = parse(flags, [*MODEL, "--tp-size", "8", "--trust-remote-code", "--mem-fraction-static=0.85"])
    assert (fields["model_path"], fields["tp_size"], fields["trust_remote_code"]) == ("m", 8, True)
    assert fields["mem_fraction_static"] == 0.85
    rest = {
        n: v
        for n, v in fields.items()
        if n not in ("model_path", "tp_size", "trust_remote_code", "mem_fraction_static")
    }
    assert all(defaults(flags)[name] == value for name, value in rest.items())


def test_aliases_and_prefixes_are_taken_as_argparse_takes_them() -> None:
    assert parse(OLD, ["--model", "m", "--tensor-parallel-size", "4"])["tp_size"] == 4
    assert parse(OLD, [*MODEL, "--mem-frac=0.7"])["mem_fraction_static"] == 0.7


@pytest.mark.parametrize(
    ("flags", "argv", "error"),
    [
        (OLD, ["--enable-warp-drive"], "unrecognized arguments: --enable-warp-drive"),
        (
            OLD,
            ["--tp-size", "eight"],
            "argument --tensor-parallel-size/--tp-size: invalid int value: 'eight'",
        ),
        (NEW, ["--moe-a2a-backend", "warp"], "argument --moe-a2a-backend: invalid choice: 'warp'"),
        (NEW, ["--tp-size"], "argument --tp-size/--tensor-parallel-size: expected one argument"),
        (NEW, ["--cuda-graph-max", "8"], "ambiguous option: --cuda-graph-max could match"),
    ],
)
def test_what_a_version_refuses(flags: str, argv: list[str], error: str) -> None:
    with pytest.raises(Refused) as info:
        parse(flags, [*MODEL, *argv])
    text = str(info.value)
    assert text.startswith("usage: sglang serve [-h]") and f"\nsglang serve: error: {error}" in text


def test_a_model_is_needed() -> None:
    with pytest.raises(Refused, match="the following arguments are required: --model-path/--model"):
        parse(NEW, [])


def test_versions_differ() -> None:
    """Flags of EAGLE-3's time and of later ones; a flag that came later is refused before."""
    later = ["--flashinfer-allreduce-fusion-backend", "auto"]
    assert parse(NEW, [*MODEL, *later])["flashinfer_allreduce_fusion_backend"] == "auto"
    with pytest.raises(Refused):
        parse(OLD, [*MODEL, *later])


def test_as_a_dataclass_is_written() -> None:
    assert (
        as_text({"model_path": "m", "tp_size": 8, "revision": None})
        == "model_path='m', tp_size=8, revision=None"
    )
