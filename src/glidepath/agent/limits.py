"""What a run may use, and a budget that many runs can share."""

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import asdict, replace
from glidepath.guards import LIMIT_KINDS, GuardrailsConfig
from glidepath.run import CallScope, Caps, Meter, Watch, dollars, pico
from glidepath.sessions import check_session_id
from glidepath.spi import Remaining
from glidepath.values import (
    FREE,
    HIGHER,
    LOWER,
    PERIODS,
    ConfigurationError,
    DeclaredSettings,
    check_fields,
    close_to,
    pluralize,
    share_of,
    short_repr,
)
from glidepath.values.setting import setting

if TYPE_CHECKING:
    from typing import Unpack

    from glidepath.agent.keywords import LimitKeywords
    from glidepath.spi import Wallet, WalletStore, WalletTerms

STORED = 2**63 - 1  # pico-dollars: what the column of a database can hold
OTHER_LIMIT_NAMES = {  # what a limit is called on the command line, in older files, or elsewhere
    "budget": "max_cost",
    "cost_limit": "max_cost",
    "deadline": "timeout",
    "max_budget": "max_cost",
    "max_budget_usd": "max_cost",
    "max_requests": "max_iterations",
    "max_seconds": "timeout",
    "max_steps": "max_iterations",
    "max_time": "timeout",
    "max_turns": "max_iterations",
    "max_usd": "max_cost",
    "recursion_limit": "max_iterations",
    "request_limit": "max_iterations",
    "seconds": "timeout",
    "steps": "max_iterations",
    "time_limit": "timeout",
    "token_budget": "max_tokens",
    "tool_calls_limit": "max_tool_calls",
    "total_tokens_limit": "max_tokens",
    "turns": "max_iterations",
    "usd": "max_cost",
}


class Limits(DeclaredSettings, frozen=True, kw_only=True):
    """What one run may use, its descendants included. Absent means unlimited.

    `max_tokens` is always the total of input and output; `max_cost` is in dollars. `grace_iterations` is how many
    turns before the turn limit the model is told to wrap up: None chooses, 0 sends no notice. With `scope="session"`
    they bound all runs of a session together, the whole conversation; `timeout` still applies to each run.
    """

    max_iterations: int | None = setting(
        "int?",
        "model turns",
        default=None,
        flag="--max-turns",
        seed="max_steps",
        metavar="N",
        cli_default=50,
        found=LOWER,
        in_python="model turns, those of descendants included; at least 1",
    )
    max_tokens: int | None = setting(
        "int?",
        "tokens in total, input and output",
        default=None,
        flag="--max-tokens",
        seed="token_budget",
        metavar="N",
        found=LOWER,
        in_python="input and output together, descendants included",
    )
    max_cost: Decimal | str | float | None = setting(
        "money?",
        "dollars in total",
        default=None,
        flag="--max-budget-usd",
        seed="cost_limit",
        metavar="USD",
        found=LOWER,
        in_python="dollars, best as a str or Decimal, descendants included",
    )
    timeout: float | None = setting(
        "seconds?",
        "time for the whole run: seconds, or 90s, 30m, 1h30m",
        default=None,
        flag="--timeout",
        seed="timeout",
        metavar="TIME",
        cli_default=1800.0,
        found=LOWER,
        in_python="seconds for the whole run",
    )
    max_tool_calls: int | None = setting(
        "int?", "tool calls in total", default=None, flag="--max-tool-calls", metavar="N", found=LOWER
    )
    max_depth: int = setting("int", "how deep agents may be spawned", default=3, found=LOWER)
    max_descendants: int = setting("int", "how many agents may be spawned", default=32, found=LOWER)
    grace_iterations: int | None = setting(
        "count",
        "turns between the wind-down notice and the turn limit; 0 sends no notice",
        default=None,
        found=FREE,
        needs="max_iterations",
        in_python="turns between notice and limit; None chooses, 0 sends no notice",
    )
    landing_tokens: int = setting("int", "tokens kept back for the landing answer", default=1024, found=HIGHER)
    landing_seconds: float = setting(
        "seconds",
        "time kept back for the landing answer",
        default=20,
        found=HIGHER,
        in_python="seconds for the landing call; at most a quarter of timeout",
    )
    scope: str = setting(
        "choice",
        "whether the limits bound each run, or all runs of a session together",
        default="run",
        choices=("run", "session"),
        found=("run", "session"),
        see="[wallets](wallets.md#a-whole-conversation)",
    )

    if TYPE_CHECKING:  # what is given may be "50k" or "5m"; what is kept is a number

        def __init__(self, **fields: Unpack[LimitKeywords]) -> None: ...

    def __post_init__(self) -> None:
        check_fields(self, "Limits.")
        if self.max_cost is not None and pico(self.max_cost, field="Limits.max_cost") <= 0:
            raise ConfigurationError(
                f"Limits.max_cost must be greater than 0 dollars, or None for no limit; got {self.max_cost!r}"
            )

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a limit, with the limit that was meant."""
        fields = cls.__struct_fields__
        meant = OTHER_LIMIT_NAMES.get(name) or close_to(name, fields)
        hint = f"did you mean {meant!r}?" if meant else f"the limits are {', '.join(fields)}"
        return ConfigurationError(f"there is no limit {name!r}; {hint}")

    @property
    def bounded(self) -> bool:
        """True when at least one limit ends a run."""
        return any(getattr(self, kind.limit) is not None for kind in LIMIT_KINDS)

    @property
    def landing_time(self) -> float:
        """Seconds kept for the landing: at most a quarter of the timeout."""
        return self.landing_seconds if self.timeout is None else min(self.landing_seconds, self.timeout / 4)

    def caps(self) -> Caps:
        """The same, as a node of the ledger has it."""
        return Caps(
            tokens=self.max_tokens,
            money=None if self.max_cost is None else pico(self.max_cost, field="Limits.max_cost"),
            turns=self.max_iterations,
            tool_calls=self.max_tool_calls,
            descendants=self.max_descendants,
            depth=self.max_depth,
        )


def check_limits(limits: object) -> None:
    """Raise `ConfigurationError` unless these are `Limits`."""
    if not isinstance(limits, Limits):
        raise ConfigurationError(
            f"limits must be a Limits such as Limits(max_iterations=10), not {short_repr(limits, 100)}"
        )


class Budget:
    """A budget that many runs share: `agent.run(prompt, parent=budget)`.

    Its limits bound all runs under it together, from any thread. Its `timeout` counts from its first run. With `name`
    and `store` it is a wallet: kept in the store, for any number of processes, and what was used stays used. `per`
    gives it its limits again every "5h", "day", "week" or "month" of UTC. What is drawn from it is drawn from its
    `parent`, too.
    """

    meter: Meter

    def __init__(
        self,
        limits: Limits,
        *,
        name: str | None = None,
        store: "WalletStore | None" = None,
        per: str | None = None,
        parent: "Budget | None" = None,
        reserve_tokens: int = 512,
        reserve_cost_fraction: str = "0.1",
    ) -> None:
        if not isinstance(limits, Limits):
            raise ConfigurationError(f"Budget takes a Limits, not {type(limits).__name__}")
        try:
            reserves = GuardrailsConfig(reserve_tokens=reserve_tokens, reserve_cost_fraction=reserve_cost_fraction)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("GuardrailsConfig.", "Budget.")) from None
        self.limits = limits
        self.store = store
        self.line = _list_wallets(limits, name, store, per, parent)
        """The wallets that its runs draw from, the outermost first; empty for a budget in memory."""
        self.parent = parent
        above: Meter | None = None if parent is None or self.line else parent.meter
        self.meter = Meter(limits.caps(), above, depth=-1)
        money = [self.meter.caps.money, *[one.max_money for one in self.line]]
        least = min([one for one in money if one is not None], default=0)
        self.meter.warn_near(reserve_tokens, share_of(least, reserves.cost_reserve))
        self._started: float | None = None
        self.place: CallScope | None = None if parent is None else parent.place

    @classmethod
    def inside(cls, place: CallScope, limits: Limits) -> "Budget":
        """A share of a run's budget, for runs started together in one of its tools or hooks."""
        budget = cls.below(place.run.meter, limits, family=False)  # which the run around it bounds
        budget.place = place.copy(place.mailbox)
        return budget

    @classmethod
    def below(cls, meter: Meter, limits: Limits, *, family: bool = True) -> "Budget":
        """Limits for runs started together that also draw from this meter; `family`: on their descendants, too."""
        budget = cls(limits)
        near = budget.meter
        caps = near.caps if family else replace(near.caps, descendants=None, depth=None)
        budget.meter = Meter(caps, meter, depth=-1)
        budget.meter.warn_near(near.near_tokens, near.near_money)
        return budget

    @classmethod
    async def find(cls, name: str, store: "WalletStore") -> "Budget":
        """An existing wallet with its parents and limits; raises `ConfigurationError` if there is none.

        Raises `StoreError` when the store fails.
        """
        from glidepath.agent.wallet_client import find_wallet  # only needed for a wallet

        wallet = await find_wallet(store, name)
        tokens, money = wallet.declared
        parent = None if wallet.parent is None else await cls.find(wallet.parent, store)
        limits = Limits(max_tokens=tokens, max_cost=None if money is None else dollars(money))
        return cls(limits, name=name, store=store, per=wallet.per, parent=parent)

    def __repr__(self) -> str:
        every = asdict(self.limits).items()
        said = [f"{name}={value!r:.30}" for name, value in every if value != getattr(Limits(), name)]
        if self.line:
            return f"<Budget {self.line[-1].name!r}: {', '.join(said) or 'without a limit'}, in {self.store!r}>"
        return f"<Budget {', '.join(said) or 'without a limit'}: {pluralize(self.meter.tokens, 'token')} used>"

    @property
    def bounded(self) -> bool:
        """True when at least one limit, of its own or above it, ends a run."""
        return self.limits.bounded or (self.parent is not None and self.parent.bounded)

    def deadline(self, now: float) -> float:
        """When its time is up, on the clock of the loop that asks; counted from the first run."""
        if self._started is None:
            self._started = now
        own = math.inf if self.limits.timeout is None else self._started + self.limits.timeout
        if self.parent is not None:
            own = min(own, self.parent.deadline(now))
        if self.place is None:
            return own
        watch: Watch = self.place.run.watch
        return min(own, watch.window_at, watch.deadline_at)

    def remaining(self) -> Remaining:
        """What is left of each limit; for a budget in memory."""
        self._require_in_memory("remaining")
        return self.meter.remaining()

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up; for a budget in memory."""
        self._require_in_memory("near_budget")
        return self.meter.near_budget()

    def _require_in_memory(self, method: str) -> None:
        if self.line:
            raise ConfigurationError(
                f"{method}() cannot look into the store of wallet {self.line[-1].name!r}: await budget.account()"
            )

    async def account(self) -> "Wallet":
        """The state of a stored budget, after settling what dead runs left behind; raises `StoreError`."""
        from glidepath.agent.wallet_client import account_of  # only needed for a wallet

        if self.store is None:
            raise ConfigurationError("this budget is in memory: ask remaining(), or give it a name and a store")
        kept: Any = self.store  # what keeps wallets keeps journals
        return await account_of(kept, self.line[-1])


def _list_wallets(
    limits: Limits, name: str | None, store: "WalletStore | None", per: str | None, parent: "Budget | None"
) -> "tuple[WalletTerms, ...]":
    """The wallets of a budget, checked; empty for one in memory."""
    if parent is not None and not isinstance(parent, Budget):
        raise ConfigurationError(f"Budget.parent must be a Budget, not {type(parent).__name__}")
    if per is not None and per not in PERIODS:
        known = ", ".join(map(repr, PERIODS))
        raise ConfigurationError(f"Budget.per must be {known} or None for all time, not {short_repr(per, 100)}")
    if limits.scope != "run":
        raise ConfigurationError(
            f"Budget takes limits without a scope: it covers every run that uses it; leave out scope={limits.scope!r}"
        )
    if store is None:
        given = {"name": name, "per": per}
        misplaced = next((field for field, value in given.items() if value is not None), None)
        if misplaced is not None:
            raise ConfigurationError(f"Budget.{misplaced} is for a stored budget: add store=..., or leave it out")
        if parent is not None and parent.store is not None:
            raise ConfigurationError(
                f"a budget inside wallet {parent.line[-1].name!r} must be stored, too: give it name=... and store=..."
            )
        return ()
    from glidepath.spi import WalletStore, WalletTerms, is_implementing

    if not is_implementing(store, WalletStore):
        what = store.__name__ if isinstance(store, type) else type(store).__name__
        raise ConfigurationError(f"Budget.store: {what} keeps no wallets; use SqliteStore(path) or PostgresStore(dsn)")
    if name is None:
        raise ConfigurationError("a stored budget needs a name, such as Budget(..., name='customer:42', store=store)")
    try:
        check_session_id(name)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("session id", "Budget.name")) from None
    for field in ("max_iterations", "max_tool_calls", "timeout"):
        if getattr(limits, field) is not None:
            raise ConfigurationError(
                f"a stored budget limits max_tokens and max_cost, not {field}: put it in the limits of the agent"
            )
    above: tuple[WalletTerms, ...] = () if parent is None else parent.line
    if parent is not None and parent.store is not store:
        raise ConfigurationError("a wallet and its parent must be in the same store: pass the same store object")
    if any(one.name == name for one in above):
        raise ConfigurationError(f"wallet {name!r} cannot be inside itself")
    caps = limits.caps()
    if caps.money is not None and caps.money > STORED:
        raise ConfigurationError(f"a stored budget can hold $9 million at most, not {limits.max_cost!r:.100}")
    terms = WalletTerms(
        name=name, per=per, parent=above[-1].name if above else None, max_tokens=caps.tokens, max_money=caps.money
    )
    return (*above, terms)
