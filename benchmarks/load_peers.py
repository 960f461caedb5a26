"""The load clients of other projects, each run as its own README says. `README.md` tells how each is installed.

A peer is here when its environment variable names its interpreter; one that is missing is left out.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass
class Load:
    """What a client is asked to do."""

    port: int
    concurrency: int
    requests: int
    tokens: int
    folder: Path
    """For its output."""
    tokenizer: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass
class Reported:
    """What a client says it saw, in ms and tok/s; lists by request in the order of sending."""

    ttft_ms: list[float] = field(default_factory=list)
    itl_ms: list[list[float]] = field(default_factory=list)
    """Empty where only means are exported."""
    throughput: float | None = None


@dataclass
class Peer:
    name: str
    variable: str
    """Environment variable that names the interpreter."""
    realtime: bool = True
    """May run under SCHED_FIFO; programs of many processes starve each other there."""

    @property
    def python(self) -> str | None:
        found = os.environ.get(self.variable)
        return found if found and Path(found).exists() else None

    def command(self, load: Load) -> list[str]:
        raise NotImplementedError

    def env(self) -> dict[str, str]:
        return {}

    def read(self, load: Load) -> Reported:
        raise NotImplementedError


def _serving(load: Load) -> list[str]:
    """The arguments that SGLang's and vLLM's clients have in common."""
    return [
        "--host", "127.0.0.1", "--port", str(load.port), "--model", "mock", "--tokenizer", str(load.tokenizer),
        "--random-input-len", "32", "--random-output-len", str(load.tokens),
        "--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency), "--disable-tqdm",
    ]  # fmt: skip


def _details(path: Path) -> Reported:
    said = json.loads(path.read_text().splitlines()[-1])
    itls = [[1e3 * gap for gap in gaps] for gaps in said.get("itls", [])]
    return Reported([1e3 * t for t in said.get("ttfts", [])], itls, said.get("output_throughput"))


class SGLang(Peer):
    def command(self, load: Load) -> list[str]:
        return [str(self.python), "-m", "sglang.benchmark.serving", *self.arguments(load)]

    def arguments(self, load: Load) -> list[str]:
        return [
            "--backend", "sglang-oai", "--dataset-name", "random-ids", "--random-range-ratio", "1",
            "--warmup-requests", "0", "--output-file", str(load.folder / "out.jsonl"), "--output-details",
            *_serving(load),
        ]  # fmt: skip

    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(HERE / "peers" / "sglang"), "HF_HUB_OFFLINE": "1"}

    def read(self, load: Load) -> Reported:
        return _details(load.folder / "out.jsonl")


class SGLangRust(SGLang):
    def command(self, load: Load) -> list[str]:
        (library,) = self._libraries()
        code = (
            "import importlib.util as u, sys; "
            f"s = u.spec_from_file_location('sglang.srt.rust_extensions._bench', {library!r}); "
            "m = u.module_from_spec(s); s.loader.exec_module(m); m.run_argv(['sglang-bench', *sys.argv[1:]])"
        )
        return [str(self.python), "-c", code, *self.arguments(load)]

    @property
    def python(self) -> str | None:
        return super().python if self._libraries() else None

    @staticmethod
    def _libraries() -> list[str]:
        unpacked = Path(os.environ.get("PEER_SGLANG", "/nonexistent"))
        return [str(path) for path in unpacked.glob("sglang/srt/rust_extensions/_bench*.so")]


class VLLM(Peer):
    def command(self, load: Load) -> list[str]:
        code = (
            "import argparse, vllm.benchmarks.serve as s; p = argparse.ArgumentParser(); "
            "s.add_cli_args(p); s.main(p.parse_args())"
        )
        return [
            str(self.python), "-c", code, "--backend", "openai", "--dataset-name", "random",
            "--random-range-ratio", "0", "--num-warmups", "0", "--save-result", "--save-detailed",
            "--result-dir", str(load.folder), "--result-filename", "out.json",
            "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99", *_serving(load),
        ]  # fmt: skip

    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(HERE / "peers" / "vllm"), "HF_HUB_OFFLINE": "1"}

    def read(self, load: Load) -> Reported:
        return _details(load.folder / "out.json")


class AIPerf(Peer):
    def command(self, load: Load) -> list[str]:
        return [
            str(Path(str(self.python)).parent / "aiperf"), "profile", "-m", "mock", "--streaming",
            "--endpoint-type", "completions", "-u", load.url, "--tokenizer", str(load.tokenizer),
            "--concurrency", str(load.concurrency), "--request-count", str(load.requests),
            "--synthetic-input-tokens-mean", "32", "--synthetic-input-tokens-stddev", "0",
            "--output-tokens-mean", str(load.tokens), "--output-tokens-stddev", "0",
            "--use-server-token-count", "--output-artifact-dir", str(load.folder), "--ui-type", "none",
        ]  # fmt: skip

    def read(self, load: Load) -> Reported:
        reported = Reported()
        for path in load.folder.rglob("profile_export.jsonl"):
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            rows.sort(key=lambda row: row.get("metadata", {}).get("request_start_ns", 0))
            for row in rows:
                found = row.get("metrics", {})
                reported.ttft_ms.append(float(found["time_to_first_token"]["value"]))
                gaps = found.get("inter_chunk_latency", {}).get("value")
                if isinstance(gaps, list):
                    reported.itl_ms.append([float(gap) for gap in gaps])
        for path in load.folder.rglob("profile_export_aiperf.json"):
            said = json.loads(path.read_text())
            reported.throughput = said.get("output_token_throughput", {}).get("avg")
        return reported


class GuideLLM(Peer):
    def command(self, load: Load) -> list[str]:
        prompts = load.folder / "prompts.jsonl"
        row = {"prompt": "w10 " * 32, "output_tokens_count": load.tokens}
        prompts.write_text("".join(json.dumps(row) + "\n" for _ in range(load.requests)))
        return [
            str(Path(str(self.python)).parent / "guidellm"), "run",
            "--backend", f"kind=openai_http,target={load.url},model=mock,request_format=/v1/completions",
            "--tokenizer", f"kind=hf_auto,model={load.tokenizer}", "--data", f"kind=json_file,path={prompts}",
            "--profile", f"kind=concurrent,streams={load.concurrency}",
            "--constraint", f"kind=max_requests,count={load.requests}",
            "--output", f"kind=json,path={load.folder / 'out.json'}", "--disable-console-interactive",
        ]  # fmt: skip

    def env(self) -> dict[str, str]:
        return {"HF_HUB_OFFLINE": "1"}

    def read(self, load: Load) -> Reported:
        """Its ITL is a mean of each request, which no single gap can be held against."""
        said = json.loads((load.folder / "out.json").read_text())
        (run,) = said["benchmarks"]
        done = run["requests"]["successful"]
        ttfts = [float(r["time_to_first_token_ms"]) for r in done if r.get("time_to_first_token_ms")]
        rate: Any = run["metrics"]["output_tokens_per_second"]["successful"]["mean"]
        return Reported(ttfts, [], float(rate))


PEERS = (
    SGLangRust("sglang rust", "PEER_SGLANG_PYTHON"),
    VLLM("vllm", "PEER_VLLM_PYTHON"),
    SGLang("sglang python", "PEER_SGLANG_PYTHON"),
    AIPerf("aiperf", "PEER_AIPERF_PYTHON", realtime=False),
    GuideLLM("guidellm", "PEER_GUIDELLM_PYTHON", realtime=False),
)


def make_tokenizer(folder: Path, python: str) -> None:
    """A small word-level tokenizer in the shape of a Hugging Face folder, made by the peer's own libraries."""
    import subprocess

    code = """
import json, pathlib, sys
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
words = {"<unk>": 0, "<s>": 1, "</s>": 2}
for i in range(997): words[f"w{i}"] = len(words)
t = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
t.pre_tokenizer = pre_tokenizers.Whitespace()
out = pathlib.Path(sys.argv[1]); out.mkdir(exist_ok=True); t.save(str(out / "tokenizer.json"))
(out / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast",
  "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 131072}))
(out / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 1000}))
"""
    subprocess.run([python, "-c", code, str(folder)], check=True, stdout=sys.stderr)
