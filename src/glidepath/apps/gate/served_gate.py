"""A gate that runs for long: keys, wallets and limits as its configuration says, drained when it is told to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.gate_application import GateApplication
from glidepath.apps.gate.gate_prices import PriceList
from glidepath.apps.gate.gate_toml import GateConfig
from glidepath.apps.gate.governor import GateGovernor, choose_upstreams
from glidepath.apps.gate.lines import LineBook
from glidepath.apps.gate.local_gate import make_doorkeeper
from glidepath.apps.gate.session_keeper import SessionKeeper
from glidepath.apps.gate.tree import GateLimits
from glidepath.apps.gate.upstream_client import UpstreamClient
from glidepath.apps.server.locks import AccessKey, KeyRing, MemoryKeys

if TYPE_CHECKING:
    from glidepath.apps.gate.deck_flights import DeckFlights
    from glidepath.apps.server.hub import Hub


class ManyKeys:
    """The keys of a file before those of a store; what is added or revoked is the store's.

    A key of the store whose name the file uses is not let in: budgets, models and runs belong to a name.
    """

    def __init__(self, first: Sequence[AccessKey], then: KeyRing) -> None:
        self._first = MemoryKeys(first)
        self._names = {key.name for key in first}
        self._then = then

    async def find(self, digest: str) -> AccessKey | None:
        """The key with this digest."""
        found = await self._first.find(digest)
        if found is not None:
            return found
        found = await self._then.find(digest)
        return None if found is None or found.name in self._names else found

    async def keys(self) -> Sequence[AccessKey]:
        """Every key."""
        return [*await self._first.keys(), *await self._then.keys()]

    async def add(self, key: AccessKey) -> None:
        """Keep a new key."""
        await self._then.add(key)

    async def revoke(self, name: str) -> AccessKey:
        """Never let it in again."""
        return await self._then.revoke(name)


class ServedGate:
    """The parts of a long-lived gate, made of its configuration. A store that it owns is closed with it."""

    def __init__(
        self,
        config: GateConfig,
        *,
        environ: Mapping[str, str],
        tokens: Mapping[str, str],
        store: Any = None,
        owns_store: bool = True,
        keys: KeyRing | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.witness = SessionKeeper(store)
        """Keeps the runs, as sessions in the store where there is one."""
        self.book = LineBook(
            GateLimits() if config.observe else GateLimits.of(config.limits),
            store=store,
            tenants=config.tenants,
            users=config.users,
            models=config.models,
        )
        self._store = store if owns_store else None
        self.governor = GateGovernor(
            line_of=self.book.find,
            upstreams=choose_upstreams(config.upstreams),
            prices=PriceList(config.prices),
            observe=config.observe,
            witness=self.witness,
        )
        ring: KeyRing = ManyKeys(config.keys, keys or MemoryKeys())
        self.application = GateApplication(
            self.governor,
            UpstreamClient(config.upstreams, environ),
            make_doorkeeper(tokens, keys=ring, hosts=[*config.allowed_hosts, *hosts]),
            max_body=config.max_body,
            body_seconds=config.body_timeout,
            keys=ring,
        )

    def join(self, hub: Hub) -> DeckFlights:
        """Show the runs of this gate in the hub of a server."""
        from glidepath.apps.gate.deck_flights import DeckFlights  # a gate that stands alone does without it

        return DeckFlights(hub, self.witness)

    async def drain(self) -> None:
        """Let calls in flight finish, then end the rest in their dialects."""
        await self.application.drain(self.config.drain)

    async def close(self) -> None:
        """End what is in flight, write how runs ended, give back what was drawn from wallets, close connections."""
        if self.application.in_flight:
            await self.drain()
        await self.application.close()
        await self.witness.close()
        await self.book.close()
        if self._store is not None:
            await self._store.close()
