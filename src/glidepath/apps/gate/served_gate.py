"""A gate that runs for long: keys, wallets and limits as its configuration says, drained when it is told to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Limits
from glidepath.apps.gate.gate_application import GateApplication
from glidepath.apps.gate.gate_prices import PriceList
from glidepath.apps.gate.gate_toml import GateConfig
from glidepath.apps.gate.governor import GateGovernor, choose_upstreams
from glidepath.apps.gate.lines import BudgetTerms, LineBook
from glidepath.apps.gate.local_gate import make_doorkeeper
from glidepath.apps.gate.recordings import Recorder
from glidepath.apps.gate.session_keeper import SessionKeeper, observe_by
from glidepath.apps.gate.tree import GateLimits
from glidepath.apps.gate.upstream_client import UpstreamClient
from glidepath.apps.server.locks import AccessKey, KeyRing, MemoryKeys
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.gate.deck_flights import DeckFlights
    from glidepath.apps.server.hub import Hub
    from glidepath.apps.telemetry import OpenTelemetry


_AT_START = ("observe", "allowed_hosts", "record")
"""What holds from the start of a gate to its end."""


class ManyKeys:
    """The keys of a file before those of a store; what is added or revoked is the store's.

    A key of the store whose name the file uses is not let in: budgets, models and runs belong to a name.
    """

    def __init__(self, first: Sequence[AccessKey], then: KeyRing) -> None:
        self._then = then
        self.change(first)

    def change(self, first: Sequence[AccessKey]) -> None:
        """The file has these keys now."""
        self._first = MemoryKeys(first)
        self._names = {key.name for key in first}

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
        telemetry: OpenTelemetry | None = None,
    ) -> None:
        self.config = config
        self.witness = SessionKeeper(store, observe=observe_by(telemetry))
        """Keeps the runs, as sessions in the store where there is one."""
        self.book = LineBook(
            GateLimits() if config.observe else GateLimits.of(config.limits),
            store=store,
            tenants=config.tenants,
            users=config.users,
            windows=config.windows,
            models=config.models,
        )
        self._store = store if owns_store else None
        self._client = UpstreamClient(config.upstreams, environ)
        self.governor = GateGovernor(
            line_of=self.book.find,
            upstreams=choose_upstreams(config.upstreams),
            prices=PriceList(config.prices),
            observe=config.observe,
            witness=self.witness,
        )
        self._keys = ManyKeys(config.keys, keys or MemoryKeys())
        secrets = self._client.list_secrets
        self.application = GateApplication(
            self.governor,
            self._client,
            make_doorkeeper(tokens, keys=self._keys, hosts=[*config.allowed_hosts, *hosts]),
            max_body=config.max_body,
            body_seconds=config.body_timeout,
            keys=self._keys,
            tap=None if config.record is None else Recorder(store, config.record, secrets=secrets),
        )

    def reload(self, config: GateConfig) -> list[str]:
        """Let another configuration hold from now on; the keys of it that wait for a restart, by name.

        Raises `ConfigurationError`, and then nothing has changed. Runs that have begun keep their limits, or get lower
        ones: none is raised.
        """
        _check_periods(self.config, config)
        prices = PriceList(config.prices)
        self._client.change(config.upstreams)
        self.governor.change(choose_upstreams(config.upstreams), prices)
        self._keys.change(config.keys)
        self.book.change(
            GateLimits() if self.config.observe else GateLimits.of(config.limits),
            keys={key.name: key for key in config.keys},
            tenants=config.tenants,
            users=config.users,
            windows=config.windows,
            models=config.models,
        )
        self.application.change(max_body=config.max_body, body_seconds=config.body_timeout)
        later = [name for name in _AT_START if getattr(config, name) != getattr(self.config, name)]
        self.config = replace(config, **{name: getattr(self.config, name) for name in _AT_START})
        return [f"gate.{name}" for name in later]

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


def _check_periods(old: GateConfig, new: GateConfig) -> None:
    """A wallet keeps its period: raises `ConfigurationError` for one that would get another."""
    known = {one.name: one.per for one in _list_budgets(old)}
    for one in _list_budgets(new):
        if known.get(one.name, one.per) != one.per:
            kind, _, name = one.name.partition(":")
            raise ConfigurationError(
                f"{kind}s.{name}.per: this budget has the period {known[one.name] or 'none'}, and cannot have another "
                f"one while there is a wallet {one.name}: stop the gates on this store, remove it with `glidepath "
                f"wallets remove {one.name}`, and start them again"
            )


def _list_budgets(config: GateConfig) -> list[BudgetTerms]:
    keys = [BudgetTerms(key.wallet, Limits(), key.per) for key in config.keys if key.wallet is not None]
    return [*keys, *config.tenants.values(), *config.users.values(), *config.windows.values()]
