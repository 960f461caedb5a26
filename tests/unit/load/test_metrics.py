"""The numbers, on samples whose every figure can be worked out by hand."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from pytest_gpuserve.load import ledger as ledger_module
from pytest_gpuserve.load import metrics
from pytest_gpuserve.load.figures import figures, itl_ns, landed_together, tpot_ns
from pytest_gpuserve.load.sample import Sample
from pytest_gpuserve.load.samples import Health, Histogram, Samples
from pytest_gpuserve.load.totals import Totals
from pytest_gpuserve.model import Slo, Workload

from .conftest import APIS, measure, stream, workload
from .test_faults import GOOD, text

MS = 1_000_000


def sample(
    index: int = 0,
    *,
    sent: float = 0,
    at: tuple[float, ...] = (100, 110, 120, 130),
    counts: tuple[int, ...] | None = None,
    output: int | None = -1,
    due: float | None = None,
    **more: Any,
) -> Sample:
    """Times in ms. `output` -1: one token an event, or the last count."""
    stamps = array("q", (int(t * MS) for t in at))
    known = (counts[-1] if counts else len(at)) if output == -1 else output
    base: dict[str, Any] = {
        "input_tokens": 8,
        "input_asked": 8,
        "output_asked": known,
        "output_tokens": known,
        "end_ns": int(at[-1] * MS) if at else int(sent * MS),
        "first_ns": stamps[0] if at else None,
        "last_ns": stamps[-1] if at else None,
        "answer_ns": stamps[0] if at else None,
    }
    return Sample(
        index=index,
        due_ns=int((sent if due is None else due) * MS),
        sent_ns=int(sent * MS),
        stamps=stamps,
        counts=None if counts is None else array("q", counts),
        **base | more,
    )


def samples(*requests: Sample, load: Workload | None = None, mode: str = "closed", **more: Any) -> Samples:
    width = 0 if mode == "open" else more.get("concurrency", 1)
    scale = more.get("time_scale", 1.0)
    ends = [r.end_ns for r in requests if r.end_ns is not None]
    base: dict[str, Any] = {
        "started": 0.0,
        "clock_start_ns": 0,
        "duration_ns": max(ends, default=0),
        "mode": mode,
        "concurrency": width or None,
        "sending_ended_ns": max((r.sent_ns or 0 for r in requests), default=None),
        "peak_in_flight": width,
        "let_go": Totals(load or workload(), scheduled=mode == "open", width=width, scale=scale, exact=True),
    }
    return Samples(requests=list(requests), **base | more)


def summary(*requests: Sample, load: Workload | None = None, **more: Any) -> Any:
    load = load or workload()
    return metrics.summarise(samples(*requests, load=load, **more), load)


# --- one request ------------------------------------------------------------------------------------


def test_tpot_leaves_out_the_tokens_of_the_first_event() -> None:
    """G2-06 with counts: 4, 3, 4 and 1 tokens in chunks 40 ms apart."""
    one = sample(at=(100, 140, 180, 220), counts=(4, 7, 11, 12))
    assert tpot_ns(one) == 15 * MS
    found = figures(one)
    assert found.tokens_in_first_chunk == 4
    assert found.tpot_ms_naive_n_minus_1 == pytest.approx(120 / 11)
    assert found.itl_ms == pytest.approx([40 / 3] * 3 + [10.0] * 4 + [40.0])
    assert found.chunk_gap_ms == [40, 40, 40]


def test_tokens_of_chunks_are_unknown_without_counts() -> None:
    one = sample(at=(100, 140, 180, 220), output=12)
    found = figures(one)
    assert (found.tpot_ms, found.itl_ms, found.tokens_in_first_chunk) == (None, None, None)
    assert found.chunk_gap_ms == [40, 40, 40] and found.ttft_ms == 100


def test_an_event_without_a_new_token_hands_its_gap_on() -> None:
    one = sample(at=(100, 110, 130), counts=(1, 1, 2))
    assert itl_ns(one) == [30 * MS] and tpot_ns(one) == 30 * MS


def test_one_token_has_no_tpot() -> None:
    assert tpot_ns(sample(at=(100,))) is None and itl_ns(sample(at=(100,))) == []


def test_chunks_that_landed_together() -> None:
    assert landed_together(sample(at=(100,) * 64))
    assert landed_together(sample(at=(100,) * 32 + (101,) * 32))
    assert not landed_together(sample(at=tuple(100 + i // 4 for i in range(64))))
    assert not landed_together(sample(at=(100,)))
    assert tpot_ns(sample(at=(100,) * 64)) is None


# --- a round ----------------------------------------------------------------------------------------


def test_percentiles_carry_their_n() -> None:
    requests = [sample(i, sent=0, at=(10 * (i + 1), 10 * (i + 1) + 5), output=2) for i in range(10)]
    found = summary(*requests, concurrency=10).metrics
    assert (found.ttft_ms.n, found.ttft_ms.mean, found.ttft_ms.p50) == (10, 55, 55)
    assert found.ttft_ms.p90 == pytest.approx(91) and found.ttft_ms.p99 == pytest.approx(99.1)
    assert found.itl_ms.n == found.tpot_ms.n == 10 and found.itl_ms.p50 == 5
    assert found.e2e_ms.p50 == 60


def test_itl_over_requests_is_each_request_by_itself() -> None:
    """Gaps between the last token of one and the first of the next are none."""
    a = sample(0, at=(100, 140, 180), counts=(4, 7, 7))
    b = sample(1, at=(300, 310, 330), counts=(1, 2, 4))
    found = summary(a, b).metrics
    expected = [40 / 3] * 3 + [10.0] + [10.0] * 2
    assert found.itl_ms.n == 6 and found.itl_ms.mean == pytest.approx(sum(expected) / 6)
    assert found.chunk_gap_ms.n == 4


def test_steady_state_of_a_closed_loop() -> None:
    """Two slots, four requests. From 200 ms (both have a token) to 600 (the first end without a
    successor)."""
    requests = [
        sample(0, sent=0, at=(100, 200, 300)),
        sample(1, sent=0, at=(200, 300, 400)),
        sample(2, sent=300, at=(400, 500, 600)),
        sample(3, sent=400, at=(500, 600, 900)),
    ]
    result = summary(*requests, concurrency=2)
    inside = [300, 300, 400, 400, 500, 500, 600, 600]
    assert result.window_s == pytest.approx(0.4)
    assert result.metrics.output_throughput == pytest.approx(len(inside) / 0.4)
    assert result.metrics.output_throughput_total == pytest.approx(12 / 0.9)
    assert result.duration_s == 0.9


def test_steady_state_of_one_slot_leaves_out_the_first_prefill_only() -> None:
    requests = [sample(i, sent=200 * i, at=(200 * i + 100, 200 * i + 150, 200 * i + 200)) for i in range(3)]
    result = summary(*requests)
    assert result.window_s == pytest.approx(0.5)
    assert result.metrics.output_throughput == pytest.approx(8 / 0.5)


def test_steady_state_of_an_open_loop() -> None:
    requests = [sample(i, sent=100 * i, at=(100 * i + 50, 100 * i + 100, 100 * i + 150)) for i in range(10)]
    result = summary(*requests, mode="open")
    assert result.window_s == pytest.approx(0.75)  # 150 ms, the first end, to 900 ms, the last send


def test_no_steady_state_is_said() -> None:
    requests = [sample(0, at=(100, 110)), sample(1, at=(900, 910))]
    result = summary(*requests, concurrency=2)
    assert result.window_s is None
    assert result.metrics.output_throughput == result.metrics.output_throughput_total
    assert "no steady state" in " ".join(result.warnings)


def test_peak_is_by_tokens_and_never_below_the_average() -> None:
    """SGLang counted chunks: average 414, peak 111. Here 12 tokens in 3 chunks, within 0.3 s of a second."""
    one = sample(at=(100, 200, 300), counts=(4, 8, 12))
    found = summary(one).metrics
    assert found.peak_output_throughput >= found.output_throughput >= found.output_throughput_total
    busy = sample(at=(*tuple(range(1000, 2000, 10)), 5000))
    found = summary(busy, sample(1, sent=5000, at=(9000,))).metrics
    assert found.peak_output_throughput == pytest.approx(100)


def test_unknown_is_none() -> None:
    found = summary(sample(output=None, input_tokens=None)).metrics
    assert found.output_throughput is None and found.output_throughput_total is None
    assert found.peak_output_throughput is None and found.input_throughput is None
    assert found.itl_ms is None and found.tpot_ms is None and found.accept_length is None
    assert found.goodput is None and found.ttft_ms.n == 1


def test_failed_requests_are_in_no_distribution() -> None:
    good = sample(0)
    bad = sample(1, at=(1, 2), failure="in_band_error", detail="boom", output=None)
    result = summary(good, bad, concurrency=2)
    assert result.metrics.ttft_ms.n == 1 and result.metrics.ttft_ms.p50 == 100
    assert (result.requests.ok, result.requests.failed) == (1, 1)
    assert result.failures == {"in_band_error": 1}
    assert "1 of 2 requests failed: in_band_error: boom" in result.invalid


def test_every_request_failed() -> None:
    result = summary(*(sample(i, at=(), failure="connect_refused") for i in range(3)))
    assert result.metrics.ttft_ms is None and result.metrics.output_throughput is None
    assert result.failures == {"connect_refused": 3} and result.invalid


def test_open_loop_latency_counts_from_the_schedule() -> None:
    """G2-19: one server that takes 500 ms, asked 10 times a second, through one slot."""
    requests = [sample(i, due=100 * i, sent=500 * i, at=(500 * i + 400, 500 * i + 500)) for i in range(8)]
    result = summary(*requests, mode="open")
    assert result.metrics.e2e_ms.mean == pytest.approx(500 + 400 * 3.5)
    assert result.client.schedule_delay_ms_p99 is None or result.client.schedule_delay_ms_p99 >= 0


def test_goodput() -> None:
    load = workload(slo=Slo(ttft_ms=105, tpot_ms=12))
    fast, late = sample(0), sample(1, sent=0, at=(110, 120, 130, 140))
    slow = sample(2, at=(100, 120, 140, 160))
    found = summary(fast, late, slow, load=load, concurrency=3)
    assert found.metrics.goodput == pytest.approx(1 / 0.16)
    assert summary(sample(at=(50,)), load=load).metrics.goodput == pytest.approx(1 / 0.05)


def test_accept_length_from_the_streams_before_the_counters() -> None:
    told = [sample(0, verify_passes=2), sample(1, verify_passes=1)]
    load = workload()
    both = samples(*told, load=load, concurrency=2)
    assert metrics.summarise(both, load, accept_length=9.0).metrics.accept_length == pytest.approx(8 / 3)
    untold = samples(sample(), load=load)
    assert metrics.summarise(untold, load, accept_length=2.4).metrics.accept_length == 2.4


def test_time_scale_scales_times_and_rates_but_not_the_client() -> None:
    """At 1/20 of the time 5 ms of real time are 100 ms of the simulated host's."""
    health = Health(cpu_ns=4_000_000, clock_cpu_ns=2 * MS, chunks=4)
    real = sample(at=(5, 5.5, 6, 6.5))
    result = summary(real, time_scale=0.05, health=health)
    assert result.metrics.ttft_ms.p50 == pytest.approx(100)
    assert result.metrics.itl_ms.p50 == pytest.approx(10)
    assert result.duration_s == pytest.approx(0.13)
    assert result.metrics.output_throughput_total == pytest.approx(4 / 0.13)
    assert result.client.cpu_share == pytest.approx(2 / 6.5)


def test_reasoning() -> None:
    first = sample(0, reasoning_events=2, answer_ns=120 * MS)
    found = summary(first, sample(1)).metrics
    assert found.ttft_ms.p50 == 100 and found.ttfot_ms.n == 1 and found.ttfot_ms.p50 == 120


# --- what makes a round invalid ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "load", "words"),
    [
        (sample(output_asked=128), workload(), "output lengths not as asked: 1 of 1"),
        (sample(input_tokens=9), workload(), "prompt lengths not as asked"),
        (sample(input_tokens=11), workload(prompt_tolerance=0.25), "prompt lengths not as asked"),
        (sample(cached_tokens=1), workload(), "cache: cold, but 1 of 8"),
        (sample(at=(100,) * 16), workload(), "landed together in 1 of 1 requests: TPOT refused"),
        (sample(at=(100,), output=64), workload(), "landed together"),
    ],
)
def test_invalid(request_: Sample, load: Workload, words: str) -> None:
    assert words in " / ".join(summary(request_, load=load).invalid)


@pytest.mark.parametrize(
    ("request_", "load"),
    [
        (sample(), workload()),
        (sample(output_asked=128), workload(ignore_eos=False)),
        (sample(input_tokens=10), workload(prompt_tolerance=0.25)),
        (sample(cached_tokens=4), workload(shared_prefix=0.5)),
        (sample(cached_tokens=8), workload(cache="warm")),
        (sample(cached_tokens=2, input_tokens=10), workload(prompt_tolerance=0.5)),
    ],
)
def test_valid(request_: Sample, load: Workload) -> None:
    assert summary(request_, load=load).invalid == []


def test_on_a_busy_machine_lateness_is_told_and_does_not_spoil_the_round() -> None:
    load = workload(busy_machine=True)
    together = samples(sample(at=(100,) * 16), load=load)
    together.health.chunks, together.health.late_merged = 100, 50
    result = metrics.summarise(together, load)
    assert result.invalid == []
    told = " / ".join(result.warnings)
    assert "landed together" in told and "client saturated" in told
    assert summary(sample(output_asked=128), load=load).invalid, "what the server did wrong stays wrong"


def test_text_prompts_are_binding_only_with_a_tolerance() -> None:
    load = workload()
    round_ = samples(sample(input_tokens=30), load=load)
    round_.let_go.exact = False
    result = metrics.summarise(round_, load)
    assert not result.invalid and "prompt_tolerance" in " ".join(result.warnings)


def test_too_little_in_flight() -> None:
    result = summary(sample(0), sample(1), concurrency=2, peak_in_flight=1)
    assert "1 requests were in flight at most, not 2" in result.invalid


def test_a_clock_that_was_set() -> None:
    health = Health(stamp_source="kernel", clock_steps=1)
    assert any("clock was set" in reason for reason in summary(sample(), health=health).invalid)


def test_a_token_before_its_request() -> None:
    """G2-23: minus 55 years of TTFT."""
    assert any("clock was set" in r for r in summary(sample(sent=150, at=(100, 110))).invalid)


def lagging(ms: float, source: str = "kernel") -> Health:
    health = Health(stamp_source=source, chunks=4)
    health.lag.add(int(ms * MS), 100)
    return health


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (lagging(60), "lag p99"),
        (lagging(9, "user"), "lag p99"),
        (Health(chunks=4, delay_ns=40 * MS, busy_ns=1000 * MS), "waited for 4% of the time"),
        (Health(chunks=4, clock_cpu_ns=990 * MS), "99% of a core"),
        (Health(chunks=100, merged=20, late_merged=6), "6% of the stamps lost"),
    ],
)
def test_a_saturated_client(health: Health, words: str) -> None:
    result = summary(sample(at=(100, 400, 700, 1000)), health=health)
    assert any(r.startswith("client saturated: ") and words in r for r in result.invalid), result.invalid


def test_where_no_request_succeeded_the_client_is_not_blamed() -> None:
    failed = sample(at=(), failure="connect_refused")
    waited = Health(delay_ns=40 * MS, busy_ns=100 * MS)
    assert [reason.split(":")[0] for reason in summary(failed, health=waited).invalid] == [
        "1 of 1 requests failed"
    ]


def test_an_unhurried_client() -> None:
    health = lagging(20)
    health.delay_ns, health.busy_ns = 20 * MS, 1000 * MS
    health.clock_cpu_ns = 300 * MS
    health.merged = 4  # all arrived together: the server's doing
    assert summary(sample(at=(100, 400, 700, 1000)), health=health).invalid == []


# --- long rounds ------------------------------------------------------------------------------------


def test_a_round_whose_token_times_are_let_go_keeps_its_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests with and without limits: counts and throughput agree, distributions say their
    sample."""
    load = workload(requests=600, concurrency=1)

    def fill() -> ledger_module.Ledger:
        totals = Totals(load, scheduled=False, width=1, scale=1.0, exact=True)
        book = ledger_module.Ledger(APIS["completions"], totals, seed=0, sink=None)
        for i in range(600):
            book._keep(sample(i, sent=100.0 * i, at=tuple(100.0 * i + t for t in (40, 60, 80, 100))))
        return book

    def result(book: ledger_module.Ledger) -> Any:
        kept = book.close()
        return metrics.summarise(
            samples(
                *kept,
                load=load,
                let_go=book.totals,
                bins=dict(book.bins),
                kept_share=book.share,
                duration_ns=60_000 * MS,
            ),
            load,
        )

    whole = result(fill())
    monkeypatch.setattr(ledger_module, "KEPT_REQUESTS", 100)
    book = fill()
    thinned = result(book)
    assert len(book.kept) <= 100 and book.share <= 0.25
    assert thinned.requests == whole.requests and thinned.requests.ok == 600
    assert thinned.window_s == whole.window_s
    assert thinned.metrics.output_throughput == pytest.approx(whole.metrics.output_throughput, rel=1e-3)
    assert thinned.metrics.peak_output_throughput == pytest.approx(40, rel=0.06)
    assert thinned.metrics.ttft_ms.n == len(book.kept) and thinned.metrics.ttft_ms.p50 == pytest.approx(40)
    assert "random sample" in " ".join(thinned.warnings) and not whole.warnings


def test_every_sample_reaches_the_sink_once(monkeypatch: pytest.MonkeyPatch, loopback: Any) -> None:
    monkeypatch.setattr(ledger_module, "OPEN_REQUESTS", 5)
    monkeypatch.setattr(ledger_module, "KEPT_REQUESTS", 10)
    seen: list[Sample] = []
    round_ = measure(loopback(stream(*GOOD)).target, workload(requests=60, concurrency=3), sink=seen.append)
    assert sorted(s.index for s in seen) == list(range(60))
    assert len(round_.requests) <= 10 and round_.totals().ok == 60
    assert round_.totals().output.known == 240


def test_histogram_quantiles() -> None:
    histogram = Histogram()
    for ns in range(0, 1_000_000, 1000):
        histogram.add(ns)
    histogram.add(50_000_000, 2)
    assert histogram.n == 1002
    assert histogram.quantile_ns(0.5) == pytest.approx(500_000, abs=8192)
    assert histogram.quantile_ns(1.0) == pytest.approx(50_000_000, rel=0.25)
    assert histogram.quantile_ns(0.5, total=10_000) == 0
    assert Histogram().quantile_ns(0.5) is None


def test_through_the_client(loopback: Any) -> None:
    """From bytes on a socket to a record that can be written down."""
    load = workload(requests=6, concurrency=2)
    events = [text(), text(), text(), *GOOD[3:]]
    result = metrics.summarise(measure(loopback(stream(*events)).target, load), load)
    assert (result.requests.ok, result.requests.output_tokens) == (6, 24)
    assert result.client.stamp_source == "kernel" and result.client.error_bound_ms is not None
    assert msgspec.json.decode(msgspec.json.encode(result))["metrics"]["ttft_ms"]["n"] == 6
