"""Named keys: the secret is shown once, the store keeps its hash. Nothing here knows about routes.

A key says what its holder may do (role, agents, models), whose runs it reaches (tenant), what it may spend (a wallet)
and how fast (starts in a period), and until when. Names are never used twice: a revoked key keeps its line, so that a
new key does not inherit the runs of an old one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Sequence
from typing import Protocol

from glidepath._wire import Value
from glidepath.apps.server.locks.roles import ROLES
from glidepath.values import PERIODS, ConfigurationError

__all__ = ["MARK", "AccessKey", "KeyRing", "MemoryKeys", "digest_of", "make_key"]

MARK = "gpk_"
"""How every key begins, so that it is recognized where it does not belong."""
TAKEN = frozenset({*ROLES, "gate", "operator", "shell"})
"""What tokens of a server or a gate are called."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}\Z")


class AccessKey(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is kept. `max_cost` and `max_tokens` are the limits of its wallet, again in every period `per`.

    At most `starts` runs begin in `every` seconds. No agents or models means all of them; a model may end with `*`.
    Times are seconds since the epoch.
    """

    name: str
    digest: str
    role: str
    tenant: str | None = None
    max_cost: str | None = None
    max_tokens: int | None = None
    per: str | None = None
    starts: int | None = None
    every: float = 60.0
    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    created: float = 0.0
    expires: float | None = None
    revoked: float | None = None

    @property
    def wallet(self) -> str | None:
        """The name of its wallet; None when its spending is not limited."""
        return None if self.max_cost is None and self.max_tokens is None else f"key:{self.name}"

    def fault(self, now: float) -> str | None:
        """Why it opens nothing now, in a sentence; None when it is good."""
        if self.revoked is not None:
            return f"key {self.name} was revoked"
        if self.expires is not None and now >= self.expires:
            return f"key {self.name} has expired"
        return None


class KeyRing(Protocol):
    """Where keys are kept.

    Contract: `find` answers from what is kept now, or was kept at most a second ago, and raises `StoreError` when that
    cannot be read: then nobody is let in by a key. `add` and `revoke` have happened when they return.
    """

    async def find(self, digest: str) -> AccessKey | None:
        """The key with this digest, revoked and expired ones included; None when there is none."""
        ...

    async def keys(self) -> Sequence[AccessKey]:
        """Every key, ordered by name."""
        ...

    async def add(self, key: AccessKey) -> None:
        """Keep a new key; raises `ConfigurationError` when its name was used before."""
        ...

    async def revoke(self, name: str) -> AccessKey:
        """Never let it in again; raises `ConfigurationError` when there is no such key."""
        ...


def digest_of(secret: str) -> str:
    """What is kept of a secret. It has 256 random bits: a fast hash cannot be turned around by guessing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def check_key_name(what: str, name: str) -> str:
    """This name; raises `ConfigurationError` for one that could not be a tag."""
    if not _NAME.match(name):
        raise ConfigurationError(
            f"{what} {name!r:.60} must be up to 40 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    if what == "key" and name in TAKEN:
        raise ConfigurationError(
            f"key {name!r} is what a token of the server itself is called, and journals could not tell them apart: "
            "choose another name"
        )
    return name


def make_key(name: str, role: str, **fields: object) -> tuple[str, AccessKey]:
    """A new secret and its key; the secret is kept nowhere. Raises `ConfigurationError`."""
    from glidepath.agent import Limits

    check_key_name("key", name)
    if role not in ROLES:
        raise ConfigurationError(f"role must be one of {', '.join(ROLES)}, not {role!r:.60}")
    secret = MARK + secrets.token_urlsafe(32)
    key = AccessKey(name=name, role=role, digest=digest_of(secret), created=time.time(), **fields)  # type: ignore[arg-type]
    if key.tenant is not None:
        check_key_name("tenant", key.tenant)
    Limits(max_cost=key.max_cost, max_tokens=key.max_tokens)  # refuses what a wallet could not keep
    if key.per is not None and key.wallet is None:
        raise ConfigurationError("a period needs a budget: give max_cost or max_tokens as well")
    if key.per is not None and key.per not in PERIODS:
        raise ConfigurationError(f"per must be one of {', '.join(PERIODS)}, not {key.per!r:.60}")
    if key.starts is not None and (key.starts < 1 or key.every <= 0):
        raise ConfigurationError("a rate is at least one start in a positive number of seconds")
    if key.wallet is not None and role not in ("run", "control"):
        raise ConfigurationError(f"the role {role} starts no runs: leave the budget out")
    return secret, key


class MemoryKeys:
    """Keys of one process, for servers without a store."""

    def __init__(self, keys: Sequence[AccessKey] = ()) -> None:
        self._named = {key.name: key for key in keys}

    async def find(self, digest: str) -> AccessKey | None:
        """The key with this digest."""
        return next((key for key in self._named.values() if key.digest == digest), None)

    async def keys(self) -> Sequence[AccessKey]:
        """Every key."""
        return [self._named[name] for name in sorted(self._named)]

    async def add(self, key: AccessKey) -> None:
        """Keep a new key."""
        if key.name in self._named:
            raise make_name_taken_error(key.name)
        self._named[key.name] = key

    async def revoke(self, name: str) -> AccessKey:
        """Never let it in again."""
        self._named[name] = revoke_key(self._named.get(name), name)
        return self._named[name]


def make_name_taken_error(name: str) -> ConfigurationError:
    """The error for a name that a key has, or had."""
    return ConfigurationError(
        f"there is or was a key named {name!r:.60}; names are not used twice, because a key reaches the runs of its "
        "name: choose another one"
    )


def revoke_key(key: AccessKey | None, name: str) -> AccessKey:
    """The key, revoked now, or when it was revoked before; raises `ConfigurationError` when there is none."""
    from glidepath._wire import replace

    if key is None:
        raise ConfigurationError(f"there is no key named {name!r:.60}: `glidepath keys list` shows them")
    return key if key.revoked is not None else replace(key, revoked=time.time())
