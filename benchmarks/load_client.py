"""How exact the load client is, and what it costs, beside other projects' clients in the same run.

    python benchmarks/load_client.py [--scenarios paced,rise,step,flat,many,start] [--peers vllm,...] [--json OUT]

Every client gets the same work from `truth_server.c`, which notes when it sent each token. Server and client each have
a core of their own. Exits 1 when a bar of ours is missed on a machine quiet enough to tell.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from load_peers import PEERS, Load, Peer, Reported, make_tokenizer
from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
ROOT = HERE.parent
QUIET = 0.05
"""Share of a core that other programs may take for a figure to count as measured on a quiet machine."""

TRIES = 3
"""A virtual machine is stopped by its host now and then, and a stop longer than a gap loses stamps whoever measures: a
figure is that of the median try, and a load counts as followed when one try did."""
SURE_NS = 10_000
"""A token whose write took longer was sent at a time that nobody knows well enough to hold an error of 15 us against:
the server, or its whole virtual machine, was interrupted in it."""


@dataclass
class Truth:
    """What the server sent; ns of CLOCK_MONOTONIC."""

    number: int
    arrived: int
    tokens: int
    blocked: int
    sent: np.ndarray[Any, Any]
    """Before each write."""
    wrote: np.ndarray[Any, Any]
    """After it."""

    @property
    def sure(self) -> np.ndarray[Any, Any]:
        return self.wrote - self.sent <= SURE_NS

    @property
    def sure_gaps(self) -> np.ndarray[Any, Any]:
        return self.sure[1:] & self.sure[:-1]


@dataclass
class Row:
    """One client in one scenario."""

    client: str
    scenario: str
    ttft_error_us: tuple[float, float] | None = None
    """p50 and p99, as the two below."""
    itl_error_us: tuple[float, float] | None = None
    """Of the gaps whose truth is sure, as for TTFT."""
    all_itl_error_us: tuple[float, float] | None = None
    sure: float | None = None
    """Share of the gaps whose truth is sure."""
    bound_us: float | None = None
    """What the client itself says that it can be off (p99)."""
    throughput: float | None = None
    true_throughput: float | None = None
    server_itl_p99_ms: float | None = None
    cpu_us_per_token: float | None = None
    rss_mb: float | None = None
    wall_s: float = 0.0
    foreign: float = 0.0
    """Share of the two cores that other programs took."""
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def worst_us(self) -> float:
        """TTFT's and ITL's errors at p99 together; infinite without any."""
        known = [pair[1] for pair in (self.ttft_error_us, self.itl_error_us) if pair is not None]
        return sum(known) if known else float("inf")

    @property
    def throughput_error(self) -> float | None:
        if self.throughput is None or not self.true_throughput:
            return None
        return self.throughput / self.true_throughput - 1


class Machine:
    """Two cores, and how much of them others take."""

    def __init__(self, cores: tuple[int, int], realtime: bool) -> None:
        self.server_core, self.client_core = cores
        self.realtime = realtime and self._may("chrt", "-f", "10", "true")
        self.nice = self._may("nice", "-n", "-10", "true")

    @staticmethod
    def _may(*command: str) -> bool:
        return (
            shutil.which(command[0]) is not None
            and subprocess.run(command, capture_output=True).returncode == 0
        )

    def pin(self, core: int, *, priority: int, realtime: bool = True) -> list[str]:
        command = ["taskset", "-c", str(core)]
        if realtime and self.realtime:
            return [*command, "chrt", "-f", str(priority)]
        return [*command, "nice", "-n", "-10"] if self.nice else command

    def wake_up_us(self, times: int = 100) -> float:
        """CPU time of a Python loop that does nothing but wait for a datagram and read it, 100 times a second.

        What every client pays for each wake-up on this machine as it is now, before it has done anything.
        """
        code = (
            "import os, select, socket, sys, time\n"
            "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "n = int(sys.argv[1])\n"
            "if os.fork() == 0:\n"
            "    os.sched_setaffinity(0, {int(sys.argv[2])})\n"
            "    for _ in range(n): time.sleep(0.01); b.send(b'x')\n"
            "    os._exit(0)\n"
            "p = select.epoll(); p.register(a.fileno(), 1); t = time.thread_time_ns()\n"
            "for _ in range(n): p.poll(5); a.recv(16)\n"
            "print((time.thread_time_ns() - t) / n / 1e3); os.wait()\n"
        )
        command = [*self.pin(self.client_core, priority=10), sys.executable, "-c", code]
        ran = subprocess.run(
            [*command, str(times), str(self.server_core)], capture_output=True, text=True, check=True
        )
        return float(ran.stdout)

    def stops(self, seconds: float = 3.0) -> dict[str, int]:
        """How often a loop that only reads the clock, on the client's core, was stopped for longer than so many ms.

        What is foreign is seen in `/proc/stat`; what the host of a virtual machine takes is seen here alone.
        """
        code = (
            "import sys, time\n"
            "now = time.monotonic_ns; last = now(); end = last + int(float(sys.argv[1]) * 1e9); found = []\n"
            "while last < end:\n"
            "    t = now()\n"
            "    if t - last > 1_000_000: found.append(t - last)\n"
            "    last = t\n"
            "print(*found)\n"
        )
        command = [*self.pin(self.client_core, priority=10, realtime=False), sys.executable, "-c", code]
        ran = subprocess.run([*command, str(seconds)], capture_output=True, text=True, check=True)
        found = list(map(int, ran.stdout.split()))
        return {f"{ms} ms": sum(ns > ms * 1_000_000 for ns in found) for ms in (1, 3, 10)}

    def cold_us(self) -> tuple[float, float]:
        """What a small function takes when it has just run, and when it has not for a second.

        Where the host of a virtual machine takes away memory that is not touched, the second is a thousand times the
        first, and everything that a client or server does rarely is late.
        """
        code = (
            "import json, re, time\n"
            "def work(): return json.dumps({'a': [1, {'b': re.sub('x', 'y', 'xxa')}]})\n"
            "def us():\n"
            "    t = time.perf_counter_ns(); work(); return (time.perf_counter_ns() - t) / 1e3\n"
            "us(); warm = us(); end = time.monotonic() + 1.2\n"
            "while time.monotonic() < end: pass\n"
            "print(warm, us())\n"
        )
        command = [*self.pin(self.client_core, priority=10, realtime=False), sys.executable, "-c", code]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        warm, cold = map(float, ran.stdout.split())
        return warm, cold

    def busy(self) -> float:
        """CPU seconds that the two cores have worked since boot."""
        total = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *values = line.split()
            if name in (f"cpu{self.server_core}", f"cpu{self.client_core}"):
                user, nice, system, _idle, _wait, irq, soft, *_ = map(int, values)
                total += user + nice + system + irq + soft
        return total / os.sysconf("SC_CLK_TCK")


class Server:
    """The truth server in its own process."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        binary = folder / "truth_server"
        compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
        if compiler is None:
            raise SystemExit("a C compiler is needed to build benchmarks/truth_server.c")
        subprocess.run([compiler, "-O2", "-o", str(binary), str(HERE / "truth_server.c")], check=True)
        self.process = subprocess.Popen(
            [*machine.pin(machine.server_core, priority=20), str(binary), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            return bytes(answer.read())

    def plan(self, **fields: int) -> None:
        # A server that spins on a realtime core uses all of it, and the kernel then takes 5 % of it away in one
        # piece: spinning is for the loads that leave it idle.
        defaults = {"ttft_us": 0, "itl_us": 0, "per_event": 1, "burst": 1, "grid": 0, "spin": 0}
        self.get("/_set?" + "&".join(f"{key}={value}" for key, value in (defaults | fields).items()))

    def truth(self) -> list[Truth]:
        raw = self.get("/_truth")
        (count,) = struct.unpack_from("<Q", raw)
        at, found = 8, []
        for _ in range(count):
            number, arrived, _, tokens, events, blocked = struct.unpack_from("<6Q", raw, at)
            at += 48
            sent = np.frombuffer(raw, dtype="<i8", count=events, offset=at)
            wrote = np.frombuffer(raw, dtype="<i8", count=events, offset=at + 8 * events)
            at += 16 * events
            found.append(Truth(number, arrived, tokens, blocked, sent, wrote))
        return sorted(found, key=lambda t: t.arrived)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@dataclass
class Ran:
    wall_s: float
    cpu_s: float
    rss_mb: float
    foreign: float
    status: int
    error: str


def execute(
    command: list[str], machine: Machine, server: Server, *, env: dict[str, str], limit_s: float
) -> Ran:
    """Run a client to its end. RSS is the sum over its process tree, sampled, for it may be many."""
    import psutil

    busy, server_cpu = machine.busy(), server.cpu_s()
    before = os.times()
    started = time.monotonic()
    child = subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    rss, process = 0.0, psutil.Process(child.pid)
    error = ""
    while True:
        try:
            _, error = child.communicate(timeout=0.25)
            break
        except subprocess.TimeoutExpired:
            with contextlib.suppress(psutil.Error):
                family = [process, *process.children(recursive=True)]
                rss = max(rss, sum(p.memory_info().rss for p in family))
            if time.monotonic() - started > limit_s:
                os.killpg(child.pid, signal.SIGKILL)
                _, error = child.communicate()
                error = f"not finished after {limit_s:g} s"
                break
    wall = time.monotonic() - started
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    own = cpu + server.cpu_s() - server_cpu + after.user + after.system - before.user - before.system
    foreign = max(0.0, machine.busy() - busy - own) / (2 * wall)
    return Ran(wall, cpu, rss / 1e6, foreign, child.returncode or 0, error[-300:])


def quantiles(errors: np.ndarray[Any, Any] | list[float]) -> tuple[float, float] | None:
    if not len(errors):
        return None
    p50, p99 = np.percentile(np.abs(errors), (50, 99))
    return float(p50), float(p99)


def true_rate(truths: list[Truth]) -> float:
    span = max(t.sent[-1] for t in truths) - min(t.arrived for t in truths)
    return float(sum(t.tokens for t in truths) / (span / 1e9))


def server_itl_p99_ms(truths: list[Truth]) -> float | None:
    gaps = [np.diff(t.sent) for t in truths if len(t.sent) > 1]
    return float(np.percentile(np.concatenate(gaps), 99)) / 1e6 if gaps else None


def hold_itl(row: Row, errors: list[np.ndarray[Any, Any]], sure: list[np.ndarray[Any, Any]]) -> None:
    """Put a client's ITL errors (us), one array for each request, into its row."""
    if not errors:
        return
    every, known = np.concatenate(errors), np.concatenate(sure)
    row.all_itl_error_us = quantiles(every)
    row.itl_error_us = quantiles(every[known])
    row.sure = float(known.mean())


class Bench:
    def __init__(
        self, machine: Machine, server: Server, folder: Path, peers: list[Peer], tokenizer: Path
    ) -> None:
        self.machine = machine
        self.server = server
        self.folder = folder
        self.peers = peers
        self.tokenizer = tokenizer
        self.rows: list[Row] = []

    def ours(
        self, scenario: str, concurrency: int, requests: int, tokens: int, *, api: str = "completions"
    ) -> Row:
        """Our client, each token held against its own truth."""
        out = self.folder / "ours.json"
        machine = self.machine
        paced = scenario.split()[0] != "flat"
        command = [
            *machine.pin(machine.client_core, priority=10, realtime=paced),
            sys.executable, str(HERE / "load_driver.py"), str(self.server.port), str(concurrency), str(requests),
            str(tokens), api, str(out),
        ]  # fmt: skip
        ran = execute(command, machine, self.server, env={"PYTHONPATH": str(ROOT)}, limit_s=300)
        if ran.status:
            raise SystemExit(f"our own client failed: {ran.error}")
        said = json.loads(out.read_text())
        truths = self.server.truth()
        by_number = {t.number: t for t in truths}
        ttft, itl, sure = [], [], []
        for request in said["requests"]:
            truth, stamps = by_number[request["number"]], np.array(request["stamps"])
            if request["failure"] or len(stamps) != len(truth.sent):
                raise SystemExit(f"request {request['number']}: {request['failure']}, {len(stamps)} events")
            if truth.sure[0]:
                ttft.append((stamps[0] - request["sent"] - (truth.sent[0] - truth.arrived)) / 1e3)
            itl.append(np.diff(stamps - truth.sent) / 1e3)
            sure.append(truth.sure_gaps)
        result = said["round"]
        bound = result["client"]["error_bound_ms"]
        row = Row(
            client="gpuserve",
            scenario=scenario,
            ttft_error_us=quantiles(ttft),
            bound_us=None if bound is None else bound * 1e3,
            throughput=result["metrics"]["output_throughput_total"],
            true_throughput=true_rate(truths),
            server_itl_p99_ms=server_itl_p99_ms(truths),
            cpu_us_per_token=result["client"]["cpu_us_per_token"],
            rss_mb=ran.rss_mb,
            wall_s=ran.wall_s,
            foreign=ran.foreign,
            note="; ".join(result["invalid"]),
            extra={"client": result["client"], "requests": said["requests"]},
        )
        hold_itl(row, itl, sure)
        return self._keep(row)

    def peer(self, peer: Peer, scenario: str, concurrency: int, requests: int, tokens: int) -> Row:
        """Another client. Its requests are matched to the truth in the order of their arrival."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        load = Load(self.server.port, concurrency, requests, tokens, folder, self.tokenizer)
        machine = self.machine
        paced = scenario.split()[0] != "flat"
        command = [
            *machine.pin(machine.client_core, priority=10, realtime=paced and peer.realtime),
            *peer.command(load),
        ]
        ran = execute(command, machine, self.server, env=peer.env(), limit_s=240)
        row = Row(
            client=peer.name, scenario=scenario, wall_s=ran.wall_s, foreign=ran.foreign, rss_mb=ran.rss_mb
        )
        try:
            if ran.status:
                raise RuntimeError(ran.error.strip().splitlines()[-1] if ran.error.strip() else "failed")
            reported = peer.read(load)
            self._against_truth(row, reported, tokens)
            row.extra["cpu_s"] = ran.cpu_s
        except Exception as error:  # a peer that fails is a row that says so
            row.note = f"did not finish: {error}"[:200]
        return self._keep(row)

    def _against_truth(self, row: Row, reported: Reported, tokens: int) -> None:
        truths = [t for t in self.server.truth() if t.tokens == tokens and len(t.sent) > 1]
        row.true_throughput = true_rate(truths)
        row.server_itl_p99_ms = server_itl_p99_ms(truths)
        row.throughput = reported.throughput
        ttft = [
            (said * 1e3) - (truth.sent[0] - truth.arrived) / 1e3
            for said, truth in zip(reported.ttft_ms, truths, strict=False)
            if truth.sure[0]
        ]
        row.ttft_error_us = quantiles(ttft)
        errors, sure = [], []
        for gaps, truth in zip(reported.itl_ms, truths, strict=False):
            true = np.diff(truth.sent) / 1e3
            n = min(len(gaps), len(true))
            errors.append(np.array(gaps[:n]) * 1e3 - true[:n])
            sure.append(truth.sure_gaps[:n])
        hold_itl(row, errors, sure)

    def cost(self, peer: Peer, scenario: str, concurrency: int, requests: int, tokens: int) -> Row:
        """A peer's CPU per token: what the run cost beyond a run of one request, which is its start-up."""
        row = self.peer(peer, scenario, concurrency, requests, tokens)
        if "cpu_s" in row.extra:
            alone = self.peer(peer, "start-up", 1, 1, tokens)
            self.rows.remove(alone)
            row.cpu_us_per_token = (
                (row.extra["cpu_s"] - alone.extra.get("cpu_s", 0.0)) * 1e6 / requests / tokens
            )
        return row

    def median(self, run: Callable[[], Row]) -> Row:
        """The middle one of some tries, by the sum of its errors at p99."""
        tries = [run() for _ in range(TRIES)]
        ranked = sorted(tries, key=Row.worst_us)
        middle = ranked[len(ranked) // 2]
        for row in tries:
            if row is not middle:
                self.rows.remove(row)
        told = ", ".join(f"{row.worst_us():,.0f}" for row in ranked)
        middle.note = f"TTFT and ITL p99 of {TRIES} tries: {told}. {middle.note}"
        return middle

    def _keep(self, row: Row) -> Row:
        self.rows.append(row)
        print(f"  {row.scenario}: {row.client} in {row.wall_s:.1f} s", file=sys.stderr)
        return row

    # --- scenarios -------------------------------------------------------------------------------

    def paced(self) -> None:
        """16 streams of 128 tokens, the first after 50 ms, then one every 10 ms."""
        self._each("paced", 16, 64, spin=1)

    def rise(self) -> None:
        """As many streams as a client can follow, each 100 tokens a second."""
        clients: list[Peer | None] = [None, *self.peers]
        for peer in clients:
            for streams in (64, 128, 256, 512, 1024, 1536, 2048):
                row = self._level(peer, streams)
                for _ in range(TRIES - 1):
                    if followed(row):
                        break
                    self.rows.remove(row)
                    row = self._level(peer, streams)
                if not followed(row):
                    break

    def _level(self, peer: Peer | None, streams: int) -> Row:
        self.server.plan(ttft_us=50_000, itl_us=10_000)
        scenario = f"rise {streams}"
        if peer is None:
            return self.ours(scenario, streams, streams, 256)
        run = self.cost if streams == 256 else self.peer
        return run(peer, scenario, streams, streams, 256)

    def step(self) -> None:
        """256 streams whose tokens all fall on the same instants, as those of a decode step do."""
        self._each("step", 256, 256, spin=1, grid=1)

    def _each(self, scenario: str, streams: int, requests: int, **plan: int) -> None:
        """Every client in turn: 128 tokens a request, the median try."""

        def once(peer: Peer | None) -> Row:
            self.server.plan(ttft_us=50_000, itl_us=10_000, **plan)
            if peer is None:
                return self.ours(scenario, streams, requests, 128)
            return self.peer(peer, scenario, streams, requests, 128)

        for peer in (None, *self.peers):
            self.median(lambda peer=peer: once(peer))

    def flat(self) -> None:
        """256,000 tokens as fast as the server can send them, 64 streams."""
        for api in ("completions", "generate", "chat"):
            self.server.plan()
            self.ours("flat" if api == "completions" else f"flat {api}", 64, 2000, 128, api=api)
        for peer in self.peers:
            self.server.plan()
            self.cost(peer, "flat", 64, 2000, 128)

    def many(self) -> None:
        """1,024 streams at once: tokens that each had received when the first of them was through."""
        self.server.plan(ttft_us=50_000, itl_us=10_000)
        row = self.ours("many", 1024, 1024, 256)
        first_end = min(r["stamps"][-1] for r in row.extra["requests"])
        counts = [sum(stamp <= first_end for stamp in r["stamps"]) for r in row.extra["requests"]]
        row.extra["fairness"] = 1 - min(counts) / max(counts)

    def start(self) -> None:
        """`gpuserve bench` from the start of the process to its first request, and its memory for 256,000 tokens."""
        code = (
            "import sys; from pytest_gpuserve.cli import main; main(['bench', *sys.argv[1:]]); "
            "print([l for l in open('/proc/self/status') if l.startswith('VmHWM')][0], file=sys.stderr)"
        )
        url = f"http://127.0.0.1:{self.server.port}"
        times, memory = [], 0.0
        for requests in (1, 1, 1, 1, 1, 2000):
            self.server.plan()
            began = time.monotonic_ns()
            ran = subprocess.run(
                [*self.machine.pin(self.machine.client_core, priority=10, realtime=False), sys.executable, "-c", code,
                 url, "--api", "completions", "--input-tokens", "32", "--concurrency", "64",
                 "--requests", str(requests), "--quiet"],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
            )  # fmt: skip
            times.append((min(t.arrived for t in self.server.truth()) - began) / 1e9)
            memory = int(ran.stderr.split("VmHWM:")[1].split()[0]) / 1024
        row = Row(client="gpuserve bench", scenario="start", rss_mb=memory)
        row.extra["first_byte_s"] = statistics.median(times)
        self._keep(row)


def followed(row: Row) -> bool:
    """Throughput within 2 %, ITL errors under 2 ms at p99, and the load really offered: nine tenths of the tokens came.

    The rest is the start of the streams, which a client may take its time with.
    """
    if row.note.startswith("did not finish") or row.throughput_error is None:
        return False
    itl = row.itl_error_us is None or row.itl_error_us[1] < 2000
    offered = int(row.scenario.split()[1]) * 100
    return abs(row.throughput_error) <= 0.02 and itl and (row.true_throughput or 0) >= 0.9 * offered


def bars(rows: list[Row]) -> Iterator[tuple[str, float | None, float, str, bool]]:
    """(what, our figure, its limit, unit, larger is better)."""
    own = {row.scenario: row for row in rows if row.client.startswith("gpuserve")}

    def get(scenario: str, name: str, index: int | None = None) -> float | None:
        value = getattr(own.get(scenario), name, None)
        return value if value is None or index is None else value[index]

    if "paced" in own:
        yield "paced: ITL error p99", get("paced", "itl_error_us", 1), 15, "us", False
        yield "paced: TTFT error p99", get("paced", "ttft_error_us", 1), 150, "us", False
    highest = {}
    for row in rows:
        if row.scenario.startswith("rise") and followed(row):
            streams = int(row.scenario.split()[1])
            highest[row.client] = max(highest.get(row.client, 0), streams * 100)
    if highest:
        best_peer = max((v for k, v in highest.items() if k != "gpuserve"), default=0)
        limit = max(100_000, 2 * best_peer)
        yield "rise: highest load followed", highest.get("gpuserve", 0), limit, "tok/s", True
    if "rise 256" in own:
        limit = min(10, cost_of(rows, "rise 256"))
        yield "rise 256: CPU per token", get("rise 256", "cpu_us_per_token"), limit, "us", False
    if "step" in own:
        yield "step: ITL error p99", get("step", "itl_error_us", 1), 20, "us", False
    if "flat" in own:
        limit = min(5, cost_of(rows, "flat"))
        yield "flat: CPU per token", get("flat", "cpu_us_per_token"), limit, "us", False
    if "many" in own:
        yield "many: spread of tokens received", own["many"].extra["fairness"] * 100, 5, "%", False
    if "start" in own:
        yield "start: to the first request", own["start"].extra["first_byte_s"], 0.4, "s", False
        yield "start: peak memory", own["start"].rss_mb, 80, "MB", False


def cost_of(rows: list[Row], scenario: str, client: str = "sglang rust") -> float:
    """CPU per token of the cheapest peer; no limit when it did not run."""
    found = (r.cpu_us_per_token for r in rows if (r.client, r.scenario) == (client, scenario))
    return next((us for us in found if us is not None), float("inf"))


def table(rows: list[Row], form: str) -> str:
    def pair(value: tuple[float, float] | None) -> str:
        return "" if value is None else f"{value[0]:,.1f} / {value[1]:,.1f}"

    def one(value: float | None, places: int = 1) -> str:
        return "" if value is None else f"{value:,.{places}f}"

    cells = [
        [
            row.scenario,
            row.client,
            pair(row.ttft_error_us),
            pair(row.itl_error_us),
            "" if row.sure is None else f"{row.sure:.0%}",
            "" if row.all_itl_error_us is None else one(row.all_itl_error_us[1]),
            one(row.bound_us, 0),
            one(row.true_throughput, 0),
            "" if row.throughput_error is None else f"{row.throughput_error:+.2%}",
            one(row.server_itl_p99_ms, 2),
            one(row.cpu_us_per_token),
            one(row.rss_mb, 0),
            f"{row.foreign:.0%}",
            row.note[:90],
        ]
        for row in rows
    ]
    heads = [
        "load", "client", "TTFT error us p50/p99", "ITL error us p50/p99", "sure", "all ITL p99",
        "own bound us", "true tok/s", "said",
        "server ITL p99 ms", "CPU us/tok", "RSS MB", "foreign", "note",
    ]  # fmt: skip
    return tabulate(cells, heads, tablefmt=form, disable_numparse=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", default="paced,step,rise,flat,many,start")
    parser.add_argument("--peers", default="all", help="names, comma separated; `none`")
    parser.add_argument("--cores", help="server,client (default: the last two that this process may use)")
    parser.add_argument("--no-realtime", action="store_true", help="never SCHED_FIFO")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    if options.cores:
        server_core, client_core = map(int, options.cores.split(","))
    else:
        server_core, client_core = allowed[-2:] if len(allowed) > 1 else (allowed[0], allowed[0])
    machine = Machine((server_core, client_core), realtime=not options.no_realtime)
    wanted = options.peers.split(",")
    peers = [p for p in PEERS if p.python and (options.peers == "all" or p.name in wanted)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if peers:
            make_tokenizer(folder / "tokenizer", next(p.python for p in peers if p.python))
        server = Server(machine, folder)
        bench = Bench(machine, server, folder, peers, folder / "tokenizer")
        wake_up, stops, (warm, cold) = machine.wake_up_us(), machine.stops(), machine.cold_us()
        try:
            for scenario in options.scenarios.split(","):
                getattr(bench, scenario)()
        finally:
            server.stop()
    print(table(bench.rows, "github" if options.markdown else "simple"))
    print(f"\ncores {server_core} and {client_core}, realtime {machine.realtime}, nice {machine.nice}")
    print(f"a wake-up of an empty Python loop takes {wake_up:.0f} us of CPU here now;")
    told = ", ".join(f"{count} times for more than {length}" for length, count in stops.items())
    print(f"in 3 s a loop that only reads the clock was stopped {told};")
    print(f"a small function takes {warm:.0f} us, and {cold:,.0f} us when it has not run for a second\n")
    missed = []
    results = []
    for what, value, limit, unit, larger in bars(bench.rows):
        met = value is not None and (value >= limit if larger else value <= limit)
        missed += [] if met else [what]
        shown = "unknown" if value is None else f"{value:,.2f} {unit}"
        results.append(
            [what, shown, f"{'>=' if larger else '<='} {limit:,.10g} {unit}", "met" if met else "MISSED"]
        )
    print(
        tabulate(results, ["bar", "ours", "limit", ""], tablefmt="github" if options.markdown else "simple")
    )
    noise = max((row.foreign for row in bench.rows if row.client.startswith("gpuserve")), default=0.0)
    if noise > QUIET:
        print(f"\nnot a quiet machine: other programs took up to {noise:.0%} of the two cores")
    if options.json:
        rows = [
            {**vars(r), "extra": {k: v for k, v in r.extra.items() if k != "requests"}} for r in bench.rows
        ]
        options.json.write_text(
            json.dumps(
                {
                    "rows": rows,
                    "bars": results,
                    "foreign": noise,
                    "wake_up_us": wake_up,
                    "stops": stops,
                    "cold_us": cold,
                    "warm_us": warm,
                },
                indent=1,
            )
        )
    return 1 if missed and noise <= QUIET else 0


if __name__ == "__main__":
    sys.exit(main())
