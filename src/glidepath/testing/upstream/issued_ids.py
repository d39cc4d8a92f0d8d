"""Ids that the scripted upstream gives out, and recognizes again without remembering them."""

from __future__ import annotations

import secrets
import time
from hashlib import blake2s
from itertools import count
from random import Random

SALT = b"scripted"
EPOCH = 1_767_225_600
"""When everything happens that is the same every time: the first second of 2026."""


class IssuedIds:
    """Makes ids such as `msg_0f3c...`: unique across upstreams, with a checksum that says they are genuine.

    With a `seed` they are the same every time, and so is the time.
    """

    def __init__(self, seed: str | None = None) -> None:
        self._seed = seed
        self._nonce = secrets.token_hex(4) if seed is None else f"{Random(seed).getrandbits(32):08x}"  # noqa: S311
        self._count = count(1)

    def now(self) -> int:
        """The time that replies bear, in seconds."""
        return int(time.time()) if self._seed is None else EPOCH

    def issue(self, prefix: str) -> str:
        """A new id."""
        middle = f"{self._nonce}{next(self._count):08x}"
        return f"{prefix}{middle}{_check(middle)}"


class RepeatedIds(IssuedIds):
    """Gives every tool call the same id; other ids are those of `ids`."""

    def __init__(self, ids: IssuedIds) -> None:
        super().__init__("repeated")
        self._ids = ids
        self._same = super().issue("")

    def now(self) -> int:
        """The time of the others."""
        return self._ids.now()

    def issue(self, prefix: str) -> str:
        """The one id for calls, else a new one."""
        return f"{prefix}{self._same}" if prefix in ("call_", "toolu_") else self._ids.issue(prefix)


def is_issued(given: str, prefix: str) -> bool:
    """Whether an upstream of this kind gave that id out; false for ids that others made up."""
    tail = given[len(prefix) :]
    return given.startswith(prefix) and tail[16:] == _check(tail[:16])


def sign(text: str) -> str:
    """A signature of hidden thinking, as vendors put one beside it."""
    return "sig" + blake2s(text.encode(), key=SALT, digest_size=18).hexdigest()


def _check(middle: str) -> str:
    return blake2s(middle.encode(), key=SALT, digest_size=4).hexdigest()
