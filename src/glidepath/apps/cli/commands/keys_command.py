"""Make, list and revoke the keys that others use to call your server.

A key is shown once, when it is made; the store keeps its hash. It says what its holder may do, spend and reach.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import parse_whole_number
from glidepath.values import PERIODS, pluralize

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.apps.server.locks import AccessKey, KeyRing

_EXAMPLES = """\
examples:
  glidepath keys add webchat --role run --max-cost 5 --per day --rate 60/minute
  glidepath keys add acme-auditor --role view --tenant acme --expires 30d > auditor.key
  glidepath keys list
  glidepath keys revoke webchat
"""
_PERIODS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    added = actions.add_parser("add", help="make a key and print it, once")
    added.add_argument("name", metavar="NAME", help="its name, in the journal of everything it does; never used twice")
    added.add_argument(
        "--role",
        required=True,
        choices=("view", "run", "approve", "control"),
        help="view: read; run: start runs and read its own; approve: decide about calls; control: everything",
    )
    added.add_argument("--tenant", metavar="NAME", help="it reaches only the runs of this tenant's keys")
    added.add_argument("--max-cost", metavar="USD", help="what it may spend, in a wallet that all processes share")
    added.add_argument("--max-tokens", type=parse_whole_number, metavar="N", help="the same in tokens")
    added.add_argument("--per", choices=PERIODS, help="after which the budget is given again (UTC)")
    added.add_argument("--rate", metavar="N/PERIOD", help="runs it may start, such as 60/minute, 5/second, 100/day")
    added.add_argument("--agent", action="append", default=[], metavar="NAME", help="only this agent; may be repeated")
    added.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="only agents on this model; may be repeated",
    )
    added.add_argument("--expires", metavar="TIME", help="after this long (30d, 12h), or on a date (2027-01-31)")
    listed = actions.add_parser("list", help="every key: role, tenant, budget, and whether it is good")
    listed.add_argument("--json", action="store_true", help="one JSON object a line, without hashes")
    revoked = actions.add_parser("revoke", help="never let a key in again; its wallet is closed")
    revoked.add_argument("name", metavar="NAME", help="which key")
    for sub in (added, listed, revoked):
        sub.add_argument(
            "--store",
            metavar="URL",
            help="the server's store (default: GLIDEPATH_STORE, else serve, the server's own store)",
        )


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    from glidepath.apps.cli.stores import NO_STORE, SERVE_STORE, make_store, on_store
    from glidepath.apps.server.locks import MemoryKeys, keys_for
    from glidepath.values import ConfigurationError

    named = options.store or world.environ.get("GLIDEPATH_STORE") or SERVE_STORE
    if named == NO_STORE:
        raise ConfigurationError("--store none keeps no keys: name the server's store")
    store = make_store(named, world)
    ring = keys_for(store)
    if isinstance(ring, MemoryKeys):
        raise ConfigurationError(f"--store {named}: this store keeps no keys: use SQLite or PostgreSQL")
    work = {"add": _add, "list": _list, "revoke": _revoke}[options.action]
    return on_store(store, lambda opened: work(options, ring, opened, world))


async def _add(options: argparse.Namespace, ring: KeyRing, store: Any, world: CliContext) -> int:
    from glidepath.apps.server.locks import make_key, wallet_of_key

    starts, every = _parse_rate(options.rate)
    secret, key = make_key(
        options.name,
        options.role,
        tenant=options.tenant,
        max_cost=options.max_cost,
        max_tokens=options.max_tokens,
        per=options.per,
        starts=starts,
        every=every,
        agents=tuple(options.agent),
        models=tuple(options.model),
        expires=_parse_expiry(options.expires),
    )
    budget = None if key.wallet is None else wallet_of_key(key, store)
    await ring.add(key)
    if budget is not None:
        from glidepath.run import pico

        await store.open_wallets(budget.line)
        money = None if key.max_cost is None else pico(key.max_cost, field="--max-cost")
        await store.set_wallet(key.wallet, max_tokens=key.max_tokens, max_money=money)
    world.note(f"{_line(key)}\nThe key, shown only now; hand it over by a safe way:")
    world.write(f"{secret}\n")
    return 0


async def _list(options: argparse.Namespace, ring: KeyRing, store: Any, world: CliContext) -> int:
    from glidepath._wire import asdict, encode

    keys = await ring.keys()
    for key in keys:
        if options.json:
            shown = {name: value for name, value in asdict(key).items() if name != "digest"}
            world.write(f"{encode(shown).decode()}\n")
        else:
            world.write(f"{_line(key)}{await _describe_spending(key, store)}\n")
    if not keys:
        world.note("there are no keys in this store: `glidepath keys add NAME --role run` makes one")
    return 0


async def _revoke(options: argparse.Namespace, ring: KeyRing, store: Any, world: CliContext) -> int:
    key = await ring.revoke(options.name)
    if key.wallet is not None:
        from glidepath.values import StoreError

        try:
            await store.close_wallet(key.wallet)
        except StoreError as error:
            if error.kind != "missing":
                raise
    world.note(
        f"key {key.name} is revoked: its next request is refused, and what it has open ends within three seconds. "
        "Its runs continue; stop them in the deck."
    )
    return 0


async def _describe_spending(key: AccessKey, store: Any) -> str:
    if key.wallet is None:
        return ""
    from glidepath.values import pluralize

    found = await store.wallets(key.wallet)
    return f", used ${found[0].cost:f}, {pluralize(found[0].tokens, 'token')}" if found else ""


def _line(key: AccessKey) -> str:
    """One key in one line."""
    import time

    limits = [f"${key.max_cost}" if key.max_cost else "", pluralize(key.max_tokens, "token") if key.max_tokens else ""]
    budget = " and ".join(one for one in limits if one)
    parts = [
        f"{key.name}: {key.role}",
        f"tenant {key.tenant}" if key.tenant else "",
        f"{budget}{f' a {key.per}' if key.per else ''}" if budget else "",
        f"{key.starts} starts in {key.every:g} s" if key.starts else "",
        f"agents {', '.join(key.agents)}" if key.agents else "",
        f"models {', '.join(key.models)}" if key.models else "",
        time.strftime("until %Y-%m-%d %H:%M UTC", time.gmtime(key.expires)) if key.expires else "",
        "revoked" if key.revoked else "expired" if key.fault(time.time()) else "",
    ]
    return ", ".join(part for part in parts if part)


def _parse_rate(said: str | None) -> tuple[int | None, float]:
    from glidepath.values import ConfigurationError

    if said is None:
        return None, 60.0
    number, _, period = said.partition("/")
    if not number.isdigit() or int(number) < 1 or period not in _PERIODS:
        raise ConfigurationError(f"--rate {said!r:.40} is not a rate: write 60/minute, 5/second, 100/hour or 1000/day")
    return int(number), _PERIODS[period]


def _parse_expiry(said: str | None) -> float | None:
    """When a key expires; raises `ConfigurationError`."""
    if said is None:
        return None
    import time
    from datetime import UTC, datetime

    from glidepath.values import ConfigurationError

    days = said.removesuffix("d")
    if said.endswith(("d", "h")) and said[:-1].isdigit() and int(said[:-1]) > 0:
        return time.time() + int(said[:-1]) * (86_400 if said != days else 3600)
    try:
        when = datetime.fromisoformat(said)
    except ValueError:
        raise ConfigurationError(f"--expires {said!r:.40} is not a time: write 30d, 12h or 2027-01-31") from None
    moment = when.replace(tzinfo=when.tzinfo or UTC).timestamp()
    if moment <= time.time():
        raise ConfigurationError(f"--expires {said} is in the past")
    return moment
