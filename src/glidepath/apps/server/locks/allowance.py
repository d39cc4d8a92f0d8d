"""What the holder of a key may start, how fast, and what it may spend: for the doors, before a run begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

from glidepath.agent import Budget, Limits
from glidepath.apps.server.locks.keys import AccessKey
from glidepath.apps.server.locks.start_counts import StartCounts, starts_for
from glidepath.apps.server.locks.visitor import Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.spi import WalletStore, is_implementing
from glidepath.values import ConfigurationError, StoreError, pluralize

__all__ = ["Allowance", "wallet_of_key"]


class Allowance:
    """Looks after the keys of one server: agents, models and rate before a start, and the wallet of each key."""

    def __init__(self, store: object, starts: StartCounts | None = None) -> None:
        self._store = store
        self._starts = starts_for(store) if starts is None else starts
        self._budgets: dict[str, Budget] = {}

    def check(self, who: Visitor, agent: str, models: Sequence[str]) -> None:
        """Raise `HttpError` for an agent or a model that a key does not name."""
        key = who.key
        if key is None:
            return
        if not self.has_agent(who, agent):
            raise HttpError(
                404, "unknown_agent", f"key {key.name} has no agent {agent!r:.80}; it has {_join_agents(key)}"
            )
        for model in models if key.models else ():
            if not any(fnmatchcase(model, one) for one in key.models):
                raise HttpError(403, "model_not_allowed", f"key {key.name} does not allow the model {model!r:.80}")

    def has_agent(self, who: Visitor, agent: str) -> bool:
        """True when this caller knows of an agent."""
        return who.key is None or not who.key.agents or agent in who.key.agents

    async def count_start(self, who: Visitor) -> None:
        """Count a start; raises `HttpError` when there were too many, in all processes on the store together."""
        key = who.key
        if key is None or key.starts is None:
            return
        try:
            wait = await self._starts.count(key)
        except StoreError as error:  # a rate that cannot be counted would be none
            raise HttpError(503, "store_unavailable", str(error), 1) from None
        if wait is not None:
            raise HttpError(
                429,
                "key_rate",
                f"key {key.name} may start {pluralize(key.starts, 'run')} in {key.every:g} seconds",
                max(1, math.ceil(wait)),
            )

    def budget(self, key: AccessKey | None) -> Budget | None:
        """The wallet of a key, which all processes on the store share; None when its spending is not limited."""
        if key is None or key.wallet is None:
            return None
        if key.name not in self._budgets:
            try:
                self._budgets[key.name] = wallet_of_key(key, self._store)
            except ConfigurationError as error:
                raise HttpError(409, "no_wallets", str(error)) from None
        return self._budgets[key.name]


def wallet_of_key(key: AccessKey, store: object) -> Budget:
    """The wallet of a key in a store; raises `ConfigurationError` when the store keeps none: no limit would hold."""
    if not is_implementing(store, WalletStore):
        raise ConfigurationError(
            f"key {key.name} has a budget, and this store keeps no wallets: use SQLite or PostgreSQL"
        )
    limits = Limits(max_cost=key.max_cost, max_tokens=key.max_tokens)
    return Budget(limits, name=key.wallet, store=store, per=key.per)


def _join_agents(key: AccessKey) -> str:
    return ", ".join(key.agents)
