"""Streams like those of G2-01 to G2-09, as other servers write them: which events are tokens, and how many."""

from __future__ import annotations

import json

from .wire_events import (
    DONE,
    END,
    ROLE,
    SPECULATED,
    TAIL,
    TWO,
    UNKNOWN,
    A,
    B,
    Relative,
    chances,
    chat,
    generated,
    ids,
    plain,
    sse,
    usage,
    used,
)

LENGTH = {"type": "length"}
TOKENS = {
    # 01: what comes before the first token
    "01 a role and no content": Relative(
        "chat", [(10, chat({"role": "assistant"})), (60, A), (90, END), *TAIL], TWO
    ),
    "01 an empty list of tool calls": Relative(
        "chat",
        [
            (10, 'data: {"choices": [{"delta": {"role": "assistant", "tool_calls": [ ]}}]}'),
            (60, A),
            (90, END),
            *TAIL,
        ],
        TWO,
    ),
    "01 a role with the first token": Relative(
        "chat",
        [(60, chat({"role": "assistant", "content": "a"})), (90, END), *TAIL],
        TWO,
    ),
    "01 empty deltas between": Relative(
        "chat",
        [
            (10, ROLE),
            (60, A),
            (75, chat({"content": ""})),
            (90, B),
            (95, chat({}, "stop")),
            (96, usage(2)),
            (96, DONE),
        ],
        TWO | {"stream_end_ms": 96},
    ),
    # 02: no token
    "02 nothing but a role": Relative("chat", [(10, ROLE), (20, DONE)], {"failure": "no_token_events"}),
    "02 EOS at once": Relative(
        "completions",
        [(40, plain("", "stop", usage=used(1))), (41, DONE)],
        {"failure": "no_token_events", "out": 1, "ttft_ms": None},
    ),
    "02 EOS at once, of a server that counts in every chunk": Relative(
        "completions",
        [(40, plain("", "stop", usage=used(1))), (41, DONE)],
        {"failure": "no_token_events", "out": 1},
        "vllm",
    ),
    "02 EOS at once, from generate": Relative(
        "generate",
        [(40, generated("", 1, {"type": "stop", "matched": 2})), (41, DONE)],
        {"failure": "no_token_events", "out": 1},
    ),
    "02 token ids and no text, of a server without a tokenizer": Relative(
        "generate",
        [
            (60, sse({"output_ids": [5], "meta_info": {"completion_tokens": 1}})),
            (90, sse({"output_ids": [5, 6], "meta_info": {"completion_tokens": 2, "finish_reason": LENGTH}})),
            (91, DONE),
        ],
        TWO | {"ttfot_ms": 60},
    ),
    "02 one token that is no whole character": Relative(
        "generate",
        [(40, generated("", 1, {"type": "length", "length": 1})), (41, DONE)],
        {"out": 1, "ttft_ms": 40, "e2e_ms": 40, "tpot_ms": None},
    ),
    # 04: where usage stands
    "04 on the chunk of the last token": Relative(
        "completions",
        [(60, plain("a")), (90, plain("b", "stop", usage=used(2))), (91, DONE)],
        TWO | {"prompt": 8},
    ),
    "04 never": Relative(
        "completions",
        [(60, plain("a")), (90, plain("b", "length")), (91, DONE)],
        TWO | UNKNOWN | {"out": None, "prompt": None},
    ),
    "04 before the finish": Relative(
        "completions",
        [
            (60, plain("a", usage=None)),
            (90, plain("b", usage=None)),
            (91, usage(2)),
            (92, plain("", "stop", usage=None)),
            (93, DONE),
        ],
        TWO,
    ),
    "04 with a token that nobody sees": Relative(
        "completions",
        [(60, plain("a")), (90, plain("b")), (95, plain("", "stop", usage=used(3))), (96, DONE)],
        TWO | UNKNOWN | {"out": 3, "tpot_ms_naive_n_minus_1": 15},
    ),
    # 05: events of another shape
    "05 no choices": Relative(
        "chat", [(60, A), (90, END), (91, sse({"usage": used(2)})), (91, DONE)], TWO | {"prompt": 8}
    ),
    "05 choices null, delta null": Relative(
        "chat",
        [(10, chat(None)), (60, A), (90, END), (91, sse({"choices": None, "usage": used(2)})), (91, DONE)],
        TWO,
    ),
    "05 fields of the standard without data": Relative(
        "chat",
        [
            (5, "retry: 3000"),
            (10, "event: ping"),
            (12, "id: 7\n: say error"),
            (60, f"id: 8\n{A}"),
            (90, f"event: message\n{END}"),
            *TAIL,
        ],
        TWO,
    ),
    "05 a byte order mark": Relative("chat", [(60, f"\ufeff{A}"), (90, END), *TAIL], TWO),
    "05 details that are null": Relative(
        "chat",
        [(60, A), (90, END), (91, usage(2, prompt_tokens_details=None)), (91, DONE)],
        TWO | {"cached": None},
    ),
    # 06: several tokens a chunk
    "06 counted in every chunk": Relative(
        "chat",
        [
            (40, chat({"content": "aaaa"}, usage=used(4))),
            (80, chat({"content": "bbb"}, usage=used(7))),
            (120, chat({"content": "c"}, "stop", usage=used(8))),
            (121, usage(8)),
            (121, DONE),
        ],
        {"out": 8, "tokens_in_first_chunk": 4, "tpot_ms": 20, "itl_ms": [40 / 3] * 3 + [40]}
        | {"chunk_gap_ms": [40, 40], "tpot_ms_naive_n_minus_1": 80 / 7},
    ),
    "06 counted by generate": Relative(
        "generate",
        [
            (40, generated("aaaa", 4, spec_verify_ct=1)),
            (80, generated("aaaabbb", 7, spec_verify_ct=2)),
            (120, generated("aaaabbbc", 8, {"type": "length"}, spec_verify_ct=3)),
            (121, DONE),
        ],
        {"out": 8, "tokens_in_first_chunk": 4, "tpot_ms": 20, "itl_ms": [40 / 3] * 3 + [40]}
        | {"chunk_gap_ms": [40, 40]},
    ),
    "06 listed as token ids": Relative(
        "completions",
        [
            (40, sse({"prompt_token_ids": [1, 2]} | json.loads(ids("aaaa", 4)[6:]))),
            (80, ids("bbb", 3)),
            (120, ids("c", 1, "stop", usage=used(8))),
            (121, DONE),
        ],
        SPECULATED,
    ),
    "06 listed as token ids, without text for a while": Relative(
        "completions",
        [
            (40, ids("aaaa", 4)),
            (80, ids("", 3)),
            (120, ids("\ufffd", 1, "stop")),
            (121, usage(8)),
            (121, DONE),
        ],
        SPECULATED,
    ),
    "06 token ids that are null": Relative(
        "completions",
        [
            (60, sse({"choices": [{"text": "a", "token_ids": None, "logprobs": None}]})),
            (90, plain("b", "stop")),
            *list(TAIL),
        ],
        TWO,
    ),
    "06 listed with log probabilities": Relative(
        "chat",
        [
            (40, chances("aaaa", [0, 0, 0, 0])),
            (80, chances("bbb", [2, 2, 2])),
            (120, chances("c", [1], "stop")),
            (121, usage(8)),
            (121, DONE),
        ],
        SPECULATED,
    ),
    "06 listed with log probabilities of completions": Relative(
        "completions",
        [
            (
                t,
                sse(
                    {
                        "choices": [
                            {"text": "x", "logprobs": {"token_logprobs": [-0.5] * n}, "finish_reason": f}
                        ]
                    }
                ),
            )
            for t, n, f in ((40, 4, None), (80, 3, None), (120, 1, "stop"))
        ]
        + [(121, usage(8)), (121, DONE)],
        SPECULATED,
    ),
    "06 all in one chunk": Relative(
        "chat",
        [(40, chat({"content": "aaaa"}, "length", usage=used(4))), (41, usage(4)), (41, DONE)],
        {"out": 4, "tokens_in_first_chunk": 4, "ttft_ms": 40, "tpot_ms": None, "itl_ms": []},
    ),
    "06 a count that grows on the empty finish": Relative(
        "chat",
        [
            (10, chat({"role": "assistant"}, usage=used(0))),
            (40, chat({"content": "aa"}, usage=used(2))),
            (80, chat({"content": "b"}, usage=used(4))),
            (90, chat({}, "stop", usage=used(5))),
            (91, usage(5)),
            (91, DONE),
        ],
        {"out": 5, "e2e_ms": 90, "tpot_ms": 50 / 3, "itl_ms": [20, 20, 10], "chunk_gap_ms": [40, 10]},
    ),
    # 08: tool calls
    "08 a tool call after silence, uncounted": Relative(
        "chat",
        [
            (10, ROLE),
            (40, chat({})),
            (80, chat({"tool_calls": [{"function": {"arguments": "{}"}}]})),
            (80, chat({}, "tool_calls")),
            (81, usage(12)),
            (81, DONE),
        ],
        UNKNOWN | {"out": 12, "ttft_ms": 80},
    ),
    "08 a tool call in pieces": Relative(
        "chat",
        [
            (60, chat({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]})),
            (90, chat({"tool_calls": [{"function": {"arguments": '{"content":"x"}'}}]})),
            (91, chat({}, "tool_calls")),
            *TAIL,
        ],
        TWO,
    ),
    "08 counts that nobody asked for, and no role": Relative(
        "chat",
        [
            (40, chat({}, usage=used(1))),
            (60, chat({}, usage=used(2))),
            (100, chat({"content": "xyz"}, "stop", usage=used(4))),
            (101, DONE),
        ],
        {"out": 4, "ttft_ms": 40, "ttfot_ms": 100, "tpot_ms": 20, "itl_ms": [20, 20, 20]},
    ),
    "08 text that is held back, and then comes as usual": Relative(
        "chat",
        [
            (40, chat({}, usage=used(1))),
            (60, chat({"content": "a"}, usage=used(2))),
            (80, chat({"content": "b"}, usage=used(3))),
            (81, chat({}, "stop", usage=used(3))),
            (81, DONE),
        ],
        {"out": 3, "ttft_ms": 40, "ttfot_ms": 60, "e2e_ms": 80, "tpot_ms": 20},
        "vllm",
    ),
    "08 counts in another spelling": Relative(
        "chat",
        [
            (
                t,
                json.dumps({"choices": [{"delta": {"content": None}}], "usage": used(n)}).join(
                    ["data: ", ""]
                ),
            )
            for t, n in ((10, 0), (40, 1), (60, 2))
        ]
        + [(100, chat({"content": "xyz"}, "stop", usage=used(4))), (101, DONE)],
        {"out": 4, "ttft_ms": 40, "e2e_ms": 100, "tpot_ms": 20, "itl_ms": [20, 20, 20]},
    ),
    # 09: reasoning
    "09 its other name": Relative(
        "chat",
        [(10, ROLE), (60, chat({"reasoning": "a", "content": None})), (90, END), *TAIL],
        TWO | {"ttfot_ms": 90},
    ),
    "09 and no answer": Relative(
        "chat",
        [(60, chat({"reasoning_content": "a"})), (90, chat({"reasoning_content": "b"}, "length")), *TAIL],
        TWO | {"ttfot_ms": None},
    ),
    "09 and a tool call": Relative(
        "chat",
        [
            (60, chat({"reasoning_content": "a"})),
            (90, chat({"tool_calls": [{"index": 0}]}, "tool_calls")),
            *TAIL,
        ],
        TWO | {"ttfot_ms": 90},
    ),
    "09 ends in the chunk that begins the answer": Relative(
        "chat",
        [
            (40, chat({"reasoning_content": "a"})),
            (60, chat({"reasoning_content": "b", "content": "c"})),
            (90, END),
            (91, usage(4)),
            (91, DONE),
        ],
        UNKNOWN | {"out": 4, "ttft_ms": 40, "ttfot_ms": 60, "e2e_ms": 90},
    ),
    "09 ends in the last chunk": Relative(
        "chat",
        [
            (40, chat({"reasoning_content": "a"})),
            (50, chat({"reasoning_content": "b"})),
            (60, chat({"reasoning_content": "c", "content": "d"}, "stop")),
            (61, usage(4)),
            (61, DONE),
        ],
        UNKNOWN | {"out": 4, "ttft_ms": 40, "ttfot_ms": 60, "e2e_ms": 60},
    ),
}
