"""Show the wallets in a store, and set what they may spend.

A wallet is a budget that is kept in a store: every run that draws from it, in any process, stays within it. Runs of the
command line draw from one with --wallet NAME, programs with Budget(..., name=NAME, store=store). `set` makes a wallet,
or outranks the limits that programs give it. Days and months are those of UTC.

A bill that is far more than the calls of a run explain is held in its wallets: neither used nor free until you
`accept` or `reject` it.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_config_flags, add_setting_flags, parse_whole_number
from glidepath.apps.cli.settings import SETTINGS
from glidepath.spi import is_implementing
from glidepath.values import PERIODS, pluralize

if TYPE_CHECKING:
    from decimal import Decimal

    from glidepath.agent.wallet_client import WalletKeeper
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.spi import DisputedBill, Wallet

_OF_A_FLIGHT = frozenset(setting.key for setting in SETTINGS) - {"store"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="every wallet: used, held by runs in flight, disputed")
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    shown = _add_wallet_name(
        actions.add_parser("show", help="one wallet: what was used in each period, and its disputed bills")
    )
    shown.add_argument("--json", action="store_true", help="print one JSON object")
    changed = _add_wallet_name(
        actions.add_parser("set", help="make a wallet, or override the limits that programs give it")
    )
    changed.add_argument("--max-cost", metavar="USD", help="dollars per period, or in total")
    changed.add_argument("--max-tokens", type=parse_whole_number, metavar="N", help="tokens per period, or in total")
    changed.add_argument("--per", choices=PERIODS, help="for a new wallet: after which its limits start again")
    changed.add_argument("--parent", metavar="NAME", help="for a new wallet: the parent wallet that it also draws from")
    changed.add_argument("--as-declared", action="store_true", help="use the limits that programs set again")
    _add_wallet_name(actions.add_parser("close", help="refuse every further call; runs in flight land"))
    _add_wallet_name(actions.add_parser("open", help="reopen a closed wallet"))
    for word, does in (("accept", "count disputed bills as used"), ("reject", "free what disputed bills block")):
        decided = _add_wallet_name(actions.add_parser(word, help=f"{does}, in each wallet that holds them"))
        decided.add_argument("bill", nargs="*", help="the bills, as `show` lists them (default: all of this wallet)")
    _add_wallet_name(actions.add_parser("remove", help="delete an unused wallet and its history"))
    for action in actions.choices.values():
        add_setting_flags(action, leave_out=_OF_A_FLIGHT)
        add_config_flags(action)


def _add_wallet_name(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", help="the wallet's name")
    return parser


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    from glidepath.apps.cli.layers import gather
    from glidepath.apps.cli.stores import DEFAULT_STORE, assume_store, make_store, on_store
    from glidepath.spi import WalletStore
    from glidepath.values import ConfigurationError

    settings = gather(options, world, only=("store",))
    named = settings.get("store") or (DEFAULT_STORE if options.action == "set" else assume_store(settings, "wallets"))
    store: Any = make_store(named, world)
    keeps_wallets = is_implementing(store, WalletStore)
    if not keeps_wallets:
        raise ConfigurationError(f"{type(store).__name__} keeps no wallets; use a file or a postgresql:// address")

    code: int = on_store(store, lambda kept: _ACTIONS[options.action](options, kept, world))
    return code


async def _list(options: argparse.Namespace, store: WalletKeeper, world: CliContext) -> int:
    from glidepath.agent.wallet_client import sweep

    await sweep(store)
    found = await store.wallets()
    for wallet in found:
        world.stdout.write(f"{json.dumps(_data(wallet)) if options.json else _line(wallet)}\n")
    if not found:
        world.note("there are no wallets in this store")
    return 0


async def _has_wallet(store: WalletKeeper, name: str) -> bool:
    from glidepath.values import StoreError

    try:
        return bool(await store.wallets(name))
    except StoreError as error:
        if error.kind != "missing":  # there is no file yet
            raise
        return False


async def _read_wallet(store: WalletKeeper, name: str) -> Wallet:
    from glidepath.values import StoreError

    found = await store.wallets(name)
    if not found:
        raise StoreError(f"there is no wallet {name!r:.80} in this store", kind="missing")
    return found[0]


async def _show(options: argparse.Namespace, store: WalletKeeper, world: CliContext) -> int:
    from glidepath.agent.wallet_client import sweep
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.run import dollars

    await sweep(store)
    wallet, bills = await _read_wallet(store, options.name), await store.bills(options.name)
    out = world.stdout
    if options.json:
        out.write(f"{json.dumps(_data(wallet) | {'bills': [_bill_data(bill) for bill in bills]})}\n")
        return 0
    out.write(f"wallet    {escape_invisible(wallet.name)}{', closed' if wallet.closed else ''}\n")
    if wallet.parent is not None:
        out.write(f"inside    {escape_invisible(wallet.parent)}\n")
    if wallet.per is not None:
        out.write(f"per       {wallet.per}, now {wallet.period} (UTC)\n")
    whose = "an operator's" if wallet.overruled else "of the program that used it last"
    out.write(f"limits    {_limits(wallet) or 'none'}{f' ({whose})' if _limits(wallet) else ''}\n")
    out.write(f"used      {_amount(wallet.tokens, wallet.cost)}\n")
    runs = pluralize(wallet.holds, "run")
    out.write(f"held      {_amount(wallet.held_tokens, wallet.held_cost)}, by {runs}\n")
    for bill in bills:
        run, amount = escape_invisible(bill.run), _amount(bill.tokens, bill.cost)
        when = datetime.fromtimestamp(bill.at, tz=UTC).strftime("%Y-%m-%d %H:%M")
        out.write(f"disputed  {amount}: bill {bill.id} of {run}, {when} (UTC)\n")
    if bills:
        world.note(f"no call explains these bills: `glidepath wallets accept {options.name} [BILL]`, or reject")
    for period, (tokens, money) in wallet.history.items() if wallet.per is not None else ():
        out.write(f"{period:<10}{_amount(tokens, dollars(money))}\n")
    return 0


async def _set(options: argparse.Namespace, store: WalletKeeper, world: CliContext) -> int:
    from glidepath.agent import Budget, Limits
    from glidepath.run import pico
    from glidepath.values import ConfigurationError

    money = None if options.max_cost is None else pico(options.max_cost, field="--max-cost")
    if options.max_tokens is not None and options.max_tokens < 0:
        raise ConfigurationError(f"--max-tokens must be at least 0, not {options.max_tokens}")
    if options.as_declared == (money is not None or options.max_tokens is not None):
        raise ConfigurationError("pass --max-cost or --max-tokens, or else --as-declared")
    if await _has_wallet(store, options.name):
        if options.per or options.parent:
            raise ConfigurationError(
                f"wallet {options.name!r:.80} already exists: --per and --parent are only for a new wallet"
            )
    else:
        if options.as_declared:
            raise ConfigurationError(f"there is no wallet {options.name!r:.80} in this store")
        parent = None if options.parent is None else await Budget.find(options.parent, store)
        limits = Limits(max_tokens=options.max_tokens, max_cost=options.max_cost)
        made = Budget(limits, name=options.name, store=store, per=options.per, parent=parent)
        await store.open_wallets(made.line)
    # For a new one, too: the first program that uses it may ask for more.
    await store.set_wallet(options.name, max_tokens=options.max_tokens, max_money=money)
    world.stdout.write(f"{_line(await _read_wallet(store, options.name))}\n")
    return 0


async def _close(options: argparse.Namespace, store: WalletKeeper, world: CliContext) -> int:
    await store.close_wallet(options.name, closed=options.action == "close")
    world.stdout.write(f"{_line(await _read_wallet(store, options.name))}\n")
    return 0


async def _decide(options: argparse.Namespace, store: WalletKeeper, world: CliContext) -> int:
    from glidepath.values import StoreError

    await _read_wallet(store, options.name)
    bills = {bill.id: bill for bill in await store.bills(options.name)}
    unknown = [given for given in options.bill if given not in bills]
    if unknown:
        have = ", ".join(bills) or "none"
        raise StoreError(
            f"{unknown[0]!r:.80} is not a disputed bill of wallet {options.name!r:.80}: it has {have}", kind="missing"
        )
    chosen = [bills[given] for given in dict.fromkeys(options.bill)] or list(bills.values())
    accepted = options.action == "accept"
    for bill in chosen:
        if await store.decide_bill(bill.id, accepted=accepted):
            said = f"{options.action}ed bill {bill.id}: {_amount(bill.tokens, bill.cost)}"
            world.stdout.write(f"{said}, {'now used' if accepted else 'free again'} in {', '.join(bill.wallets)}\n")
    if not chosen:
        world.note(f"wallet {options.name} has no disputed bills")
    world.stdout.write(f"{_line(await _read_wallet(store, options.name))}\n")
    return 0


async def _remove(options: argparse.Namespace, store: WalletKeeper, world: CliContext) -> int:
    from glidepath.agent.wallet_client import sweep

    await sweep(store)
    await store.remove_wallet(options.name)
    world.note(f"removed wallet {options.name}")
    return 0


_ACTIONS: dict[str, Any] = {
    "list": _list,
    "show": _show,
    "set": _set,
    "close": _close,
    "open": _close,
    "accept": _decide,
    "reject": _decide,
    "remove": _remove,
}


def _line(wallet: Wallet) -> str:
    """One wallet in one line."""
    from glidepath.apps.cli.display_text import escape_invisible

    when = f" in {wallet.period}" if wallet.period else ""
    cost = f"${wallet.cost:f}" + ("" if wallet.max_cost is None else f" of ${wallet.max_cost:f}")
    tokens = str(wallet.tokens) + ("" if wallet.max_tokens is None else f" of {wallet.max_tokens}")
    held = f", {_amount(wallet.held_tokens, wallet.held_cost)} held" if wallet.holds else ""
    if wallet.disputed_tokens or wallet.disputed_money:
        held += f", {_amount(wallet.disputed_tokens, wallet.disputed_cost)} disputed"
    return (
        f"{escape_invisible(wallet.name)}: {cost}, {tokens} tokens "
        f"used{when}{held}{', closed' if wallet.closed else ''}"
    )


def _data(wallet: Wallet) -> dict[str, Any]:
    """One wallet for programs: money in dollars, exactly, as text."""
    return {
        "name": wallet.name,
        "parent": wallet.parent,
        "per": wallet.per,
        "period": wallet.period,
        "closed": wallet.closed,
        "max_cost": None if wallet.max_cost is None else f"{wallet.max_cost:f}",
        "max_tokens": wallet.max_tokens,
        "cost": f"{wallet.cost:f}",
        "tokens": wallet.tokens,
        "held_cost": f"{wallet.held_cost:f}",
        "held_tokens": wallet.held_tokens,
        "runs": wallet.holds,
        "disputed_cost": f"{wallet.disputed_cost:f}",
        "disputed_tokens": wallet.disputed_tokens,
        "history": {period: _figures(*used) for period, used in wallet.history.items()},
    }


def _figures(tokens: int, money: int) -> dict[str, Any]:
    from glidepath.run import dollars

    return {"cost": f"{dollars(money):f}", "tokens": tokens}


def _bill_data(bill: DisputedBill) -> dict[str, Any]:
    held_in = dict(zip(bill.wallets, bill.periods, strict=True))
    return {"id": bill.id, "run": bill.run, "wallets": held_in, "at": bill.at, **_figures(bill.tokens, bill.money)}


def _limits(wallet: Wallet) -> str:
    tokens = None if wallet.max_tokens is None else pluralize(wallet.max_tokens, "token")
    cost = None if wallet.max_cost is None else f"${wallet.max_cost:f}"
    return ", ".join(part for part in (cost, tokens) if part is not None)


def _amount(tokens: int, cost: Decimal) -> str:
    return f"${cost:f}, {pluralize(tokens, 'token')}"
