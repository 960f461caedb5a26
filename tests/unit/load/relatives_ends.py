"""Streams like those of G2-11 to G2-15, as other servers write them: errors, reads, ends."""

from __future__ import annotations

from .wire_events import (
    DONE,
    END,
    SMILE,
    TAIL,
    TWO,
    UNKNOWN,
    A,
    B,
    Relative,
    chat,
    generated,
    plain,
    sse,
    usage,
    used,
)

ENDS = {
    # 11: errors after tokens
    "11 object: error": Relative(
        "chat",
        [(60, A), (90, B), (95, sse({"object": "error", "message": "died"})), (95, DONE)],
        {"failure": "in_band_error", "partial": 2, "out": None, "e2e_ms": 90},
    ),
    "11 beside choices that are null": Relative(
        "chat",
        [(60, A), (95, sse({"choices": None, "error": {"message": "died"}}))],
        {"failure": "in_band_error", "partial": 1},
    ),
    "11 not an event at all": Relative(
        "chat",
        [(60, A), (95, '{"error":{"message":"died","code":500}}')],
        {"failure": "in_band_error", "partial": 1},
    ),
    "11 an error event without words": Relative(
        "chat",
        [(60, A), (90, END), (91, "event: error"), (91, DONE)],
        {"failure": "in_band_error", "partial": 2},
    ),
    "11 after the finish": Relative(
        "chat",
        [(60, A), (90, END), (91, usage(2)), (92, sse({"error": "late"})), (92, DONE)],
        {"failure": "in_band_error", "partial": 2},
    ),
    "11 aborted": Relative(
        "generate",
        [(60, generated("a", 1)), (90, generated("a", 1, {"type": "abort", "message": "m"})), (91, DONE)],
        {"failure": "aborted", "partial": 1},
    ),
    "11 error: null is none": Relative(
        "chat",
        [(60, chat({"content": "a"}, error=None)), (90, chat({"content": "b"}, "stop", error=None)), *TAIL],
        TWO,
    ),
    # 12: nothing but an error
    "12 and [DONE]": Relative(
        "chat", [(5, sse({"error": {"code": 400}})), (5, DONE)], {"failure": "in_band_error", "out": None}
    ),
    "12 as JSON on several lines": Relative(
        "chat",
        [(5, '{\n  "object": "error",\n  "message": "too long"\n}')],
        {"failure": "in_band_error", "ttft_ms": None},
    ),
    # 14: reads and events
    "14 only CR": Relative(
        "chat",
        [(t, event.encode() + b"\r\r") for t, event in ((60, A), (90, END), *TAIL)],
        TWO,
    ),
    "14 within a character": Relative(
        "chat",
        [
            (50, SMILE[: SMILE.index(b"\xf0") + 2]),
            (60, SMILE[SMILE.index(b"\xf0") + 2 :] + b"\n\n"),
            (90, END),
            *TAIL,
        ],
        TWO,
    ),
    "14 within a blank line": Relative(
        "chat",
        [(50, A.encode() + b"\r\n\r"), (60, b"\n"), (80, END.encode() + b"\n"), (90, b"\n"), *TAIL],
        TWO,
    ),
    "14 several events a read": Relative(
        "chat",
        [(60, f"{A}\n\n{B}\n\n{A}\n\n".encode()), (90, f"{END}\n\n{usage(4)}\n\n{DONE}\n\n".encode())],
        {"out": 4, "ttft_ms": 60, "e2e_ms": 90, "tpot_ms": 10, "itl_ms": [0, 0, 30]},
    ),
    "14 an event on several lines": Relative(
        "chat",
        [(60, b'data: {"choices":[{"delta":\ndata: {"content":"a"}}]}\n\n'), (90, END), *TAIL],
        TWO,
    ),
    "14 half an emoji in each of two events": Relative(
        "chat",
        [
            (60, 'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}'),
            (90, 'data: {"choices":[{"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}'),
            *TAIL,
        ],
        TWO,
    ),
    "14 bytes that are no UTF-8": Relative(
        "chat",
        [(60, A.encode().replace(b'"a"', b'"\xf0\x9f"') + b"\n\n"), (90, END), *TAIL],
        TWO,
    ),
    "14 a first event that is cut off": Relative(
        "chat", [(60, A[:-3]), (90, END), *TAIL], {"failure": "unreadable", "out": 2}
    ),
    # 15: what is counted
    "15 white space": Relative(
        "chat",
        [(60, chat({"content": " "})), (90, chat({"content": "\n\n"}, "length")), *TAIL],
        TWO,
    ),
    "15 more events than tokens": Relative(
        "completions",
        [(40, plain("a")), (60, plain("b")), (80, plain("c", "stop", usage=used(2))), (81, DONE)],
        UNKNOWN | {"out": 2, "ttft_ms": 40, "e2e_ms": 80, "tpot_ms_naive_n_minus_1": 40},
    ),
    "15 text that does not grow": Relative(
        "generate",
        [(60, generated("\ufffd", 1)), (90, generated("\ufffd", 2, {"type": "stop"})), (91, DONE)],
        TWO,
    ),
    "15 one token": Relative(
        "completions",
        [(40, plain("a", "length", usage=used(1))), (41, DONE)],
        {"out": 1, "ttft_ms": 40, "e2e_ms": 40, "tpot_ms": None, "itl_ms": [], "chunk_gap_ms": []}
        | {"tpot_ms_naive_n_minus_1": None, "tokens_in_first_chunk": 1},
    ),
    # ends
    "no [DONE]": Relative(
        "chat", [(60, A), (90, END), (91, usage(2))], {"failure": "no_done", "out": 2, "partial": 2}
    ),
    "no [DONE] where none is promised": Relative(
        "chat", [(60, A), (90, chat({"content": "b"}, "stop", usage=used(2)))], TWO, "transformers"
    ),
    "cached prompt tokens": Relative(
        "chat",
        [(60, A), (90, END), (91, usage(2, prompt_tokens_details={"cached_tokens": 5})), (91, DONE)],
        TWO | {"cached": 5},
    ),
}
