"""A small byte-level BPE, in the form of GPT-2: special tokens, the 256 bytes, and common words letter by
letter.
"""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from ...load.prompts import words

END, TURN, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END, TURN, TURN_END)
SIZE = 1024

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Vocabulary(Struct, frozen=True):
    tokens: tuple[str, ...]
    """By id, bytes spelt as GPT-2 spells them: a blank is `Ġ`."""
    merges: tuple[tuple[str, str], ...]

    def id(self, token: str) -> int:
        return self.tokens.index(token)

    def unspeakable(self) -> list[int]:
        """Ids whose text is not printable ASCII, the special ones among them: a model that never says them
        always goes on to the length asked, and shows every token as text.
        """
        spoken = {spelling for byte, spelling in enumerate(spellings()) if 32 <= byte < 127}
        return [
            number
            for number, token in enumerate(self.tokens)
            if token in SPECIAL or not spoken.issuperset(token)
        ]


@cache
def spellings() -> tuple[str, ...]:
    """The letter that GPT-2's byte-level BPE writes for each byte: itself where it can be seen, else one
    from 256 on (`bytes_to_unicode` in openai/gpt-2, src/encoder.py).
    """
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256, 512))
    return tuple(chr(byte if byte in visible else next(hidden)) for byte in range(256))


@cache
def vocabulary() -> Vocabulary:
    """Each word with its blank grows letter by letter, so that a word is one token and so is each of its
    beginnings.
    """
    blank = spellings()[ord(" ")]
    tokens = dict.fromkeys((*SPECIAL, *spellings()))
    merges: dict[tuple[str, str], None] = {}
    for word in words():
        grown = blank
        for letter in word:
            if (grown, letter) not in merges:
                if len(tokens) == SIZE:
                    return Vocabulary(tuple(tokens), tuple(merges))
                merges[grown, letter] = None
                tokens[grown + letter] = None
            grown += letter
    return Vocabulary(tuple(tokens), tuple(merges))
