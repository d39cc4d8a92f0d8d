"""How many tokens a text takes at most, by the kinds of characters in it: a few passes in C, no tokenizer.

Prose and code stay below a token for three bytes. Numbers, hex, base64, CSV and emoji do not: a tokenizer takes digits
three at a time, splits where the case changes, and spends a token on most signs. The weights, in hundredths of a
token, were fitted to the counts of o200k and cl100k; `bench/tokens.py` compares.

Every character becomes one byte with one bit set for its kind, and the text one large integer: how often one kind
follows another is then a shift, an `and` and a count of bits.
"""

from __future__ import annotations

from functools import cache

MESSAGE_TOKENS = 8  # overhead of a message
ORDINARY_ID = 48  # characters of a call id that are in the overhead of a message or a call

BYTES_PER_TOKEN = 3
_CHUNK = 16_384

_PLAIN = b"abcdefghijklmnopqrstuvwxyz \n"
_SHORT = 48  # bytes: shorter ones are covered by the overhead of a message
_SMALL = 128
_PLAIN_SHARE = 9  # a text with fewer than one other character in nine is prose
_LEAST_BLOB = 64  # characters
_FEW = 3  # different letters that are repeated: cheap, too
_WORD = 24  # average letters in a row without a space: longer than the words of any language

_LOWER, _UPPER, _DIGIT, _SIGN, _BLANK, _SYMBOL, _EMOJI = (1 << bit for bit in range(7))
_RANGES = (
    (97, 123, _LOWER),
    (65, 91, _UPPER),
    (48, 58, _DIGIT),
    (0, 128, _SIGN),
    (226, 227, _SYMBOL),  # the first byte of U+2000 to U+2FFF
    (240, 256, _EMOJI),  # the first byte of four
    (128, 256, 0),
)


def _make_kind_table() -> bytes:
    """The kind of every byte: the first range that has it, unless it is a blank."""
    kinds = bytearray(256)
    for start, end, kind in reversed(_RANGES):
        kinds[start:end] = bytes([kind]) * (end - start)
    for code in b" \t\n\r\v\f":
        kinds[code] = _BLANK
    return bytes(kinds)


_KINDS = _make_kind_table()
_FEW_BYTES, _MOST_BYTES = 2_048, 4 * _CHUNK


@cache
def _repeat_kind_bits(size: int) -> tuple[int, ...]:
    """Each kind as a number that has its bit in every one of `size` bytes; the large ones are made when needed."""
    return tuple([int.from_bytes(bytes([1 << bit]) * size, "little") for bit in range(7)])


def text_tokens(text: str) -> int:
    """Tokens of a text, erring on the high side; a huge text is measured without a second copy of it."""
    size = len(text)
    if size <= _CHUNK and text.isascii():
        least = (size + 2) // BYTES_PER_TOKEN
        data = text.encode()
        if size > _SMALL:  # prose is as `_is_prose` knows it, too
            if len(data.translate(None, _PLAIN)) * _PLAIN_SHARE >= size:
                return _estimate_tokens(data)
            return least if (data.count(b" ") + data.count(b"\n")) * _WORD > size else _estimate_tokens(data)
        if size <= _SHORT:
            return least
        others = len(data.translate(None, _PLAIN))  # a closer look would cost more than it is worth
        tokens = others + (size - others) // 10
        return tokens if tokens > least else least  # noqa: FURB136 - quicker
    if size <= _CHUNK:
        return _estimate_tokens(text.encode("utf-8", "surrogatepass"))
    starts = range(0, size, _CHUNK)
    return sum([_estimate_tokens(text[start : start + _CHUNK].encode("utf-8", "surrogatepass")) for start in starts])


def result_tokens(tool_name: str, text: str) -> int:
    """Tokens of a tool's result that is a text, with an ordinary call id: every turn has one."""
    size = len(text)
    least = (size + 2) // 3 if size <= 48 and text.isascii() else text_tokens(text)  # noqa: PLR2004 - _SHORT
    return least + (len(tool_name) + 2) // 3 + 8  # MESSAGE_TOKENS


def opaque_tokens(text: str) -> int:
    """Tokens of what no tokenizer reads, such as a provider's encrypted reasoning: by its length."""
    return (len(text) + 2) // BYTES_PER_TOKEN


def dense_tokens(text: str) -> int:
    """Tokens of a text by its kinds of characters alone: fewer than there are for prose, never fewer for dense text."""
    tokens = 0
    for start in range(0, len(text), _CHUNK):
        data = text[start : start + _CHUNK].encode("utf-8", "surrogatepass")
        tokens += 0 if _is_prose(data, len(data)) else _estimate_dense_tokens(data, len(data))
    return tokens


def _is_prose(data: bytes, size: int) -> bool:
    if size <= _SHORT:
        return True
    if len(data.translate(None, _PLAIN)) * _PLAIN_SHARE < size and (
        size < _LEAST_BLOB or (data.count(b" ") + data.count(b"\n")) * _WORD > size
    ):
        return True
    return data.count(data[:1]) * 2 >= size and data[:2] == data[1:3]  # one that is repeated is cheap


def _count_variety(data: bytes) -> int:
    """How many different characters there are, at the beginning or the end."""
    return min(len({*data[:_LEAST_BLOB]}), len({*data[-_LEAST_BLOB:]}))


def _estimate_tokens(data: bytes) -> int:
    size = len(data)
    least = (size + 2) // BYTES_PER_TOKEN
    return least if _is_prose(data, size) else max(least, _estimate_dense_tokens(data, size))


def _estimate_dense_tokens(data: bytes, size: int) -> int:
    every_lower, every_upper, every_digit, every_sign, every_blank, every_symbol, every_emoji = _repeat_kind_bits(
        _FEW_BYTES if size <= _FEW_BYTES else _MOST_BYTES
    )
    kinds = int.from_bytes(data.translate(_KINDS), "little")
    following = kinds >> 8
    lower, upper = (kinds & every_lower).bit_count(), (kinds & every_upper).bit_count()
    digits, signs, blanks = (
        (kinds & every_digit).bit_count(),
        (kinds & every_sign).bit_count(),
        (kinds & every_blank).bit_count(),
    )
    both = kinds & following
    hundredths = lower * 10 + upper * 70 + signs * 120 - (both & every_sign).bit_count() * 35
    hundredths += (kinds & following >> 1 & every_lower).bit_count() * 102  # a capital behind a lower-case letter
    if digits:  # in groups of three at most
        numbers = digits - (both & every_digit).bit_count()
        hundredths += digits * 34 + numbers * 66
        hundredths += (
            kinds >> 2 & (following | following >> 1) & every_lower
        ).bit_count() * 90  # a letter behind a digit
        hundredths += (kinds >> 4 & following >> 2 & every_lower).bit_count() * 150  # a number behind a blank
    others = size - lower - upper - digits - signs - blanks
    if others:  # bytes outside ASCII: emoji and symbols take two tokens and more
        hundredths += others * 34 + (kinds & every_symbol).bit_count() * 100 + (kinds & every_emoji).bit_count() * 145
    elif size >= _LEAST_BLOB and (size - lower - upper) * _WORD < size and _count_variety(data) > _FEW:
        hundredths = max(hundredths, size * 57)  # very long runs of letters, which are not words
    return -(-hundredths // 100)
