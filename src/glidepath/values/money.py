"""Money: dollars as whole pico-dollars, and what the tokens and searches of a model cost."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, settle_field
from glidepath.values.errors import ConfigurationError, short_repr
from glidepath.values.quantities import EXACT

if TYPE_CHECKING:
    from glidepath.values.messages import Media, Usage

PICO = 10**12
_PARTS = 5  # figures of a price at most
SATURATED = 1 << 62  # tokens or pico-dollars: where every meter and store stops counting, below what a column can hold
MOST = 10**15  # dollars: more is a slip, and beyond what can be counted exactly


_AUDIO = ("audio_input", "audio_cached", "audio_output")
_IMAGE = ("image_input", "image_cached", "image_output")


def pico(amount: Decimal | str | float, *, field: str) -> int:
    """Dollars as whole pico-dollars, rounded up; raises `ConfigurationError` naming `field`."""
    if isinstance(amount, bool):
        raise ConfigurationError(f"{field} must be an amount in dollars, not {amount!r}")
    try:
        value = Decimal(str(amount) if isinstance(amount, float) else amount)
    except (ArithmeticError, TypeError, ValueError):
        raise ConfigurationError(
            f"{field} must be an amount in dollars such as '0.50', not {short_repr(amount, 100)}"
        ) from None
    if not value.is_finite() or not 0 <= value < MOST:
        raise ConfigurationError(
            f"{field} must be a finite amount of at least 0 dollars, not {short_repr(amount, 100)}"
        )
    return int(EXACT.multiply(value, PICO).to_integral_value(ROUND_CEILING, context=EXACT))


def pico_of(cost: Decimal | None) -> int:
    """A cost that we have written, as whole pico-dollars."""
    return 0 if cost is None else int(EXACT.multiply(cost, PICO))


def read_dollars(amount: object) -> float | None:
    """Dollars that a provider reports; None if not an amount. One that is too high to count is the highest."""
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        return None
    try:
        return float(amount) if 0 <= amount < MOST else float(MOST) if MOST <= amount < inf else None
    except ArithmeticError:  # a Decimal NaN cannot be compared
        return None


class Price(Value, frozen=True, gc=False):
    """What a token costs, in pico-dollars."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None
    tier_start: int | None = None
    tier: Price | None = None
    """What a call costs whose prompt is longer than `tier_start` tokens."""
    web_search: int = 0
    """What a search of the web costs that the provider makes for a call."""
    worst_input: int = 0
    """The most an input token can cost; worked out here."""
    audio_input: int | None = None
    audio_cached: int | None = None
    audio_output: int | None = None
    image_input: int | None = None
    image_cached: int | None = None
    image_output: int | None = None
    """What a token of sound or of a picture costs, where that is not what a token of text costs."""
    code_session: int = 0
    """What a container costs in which the provider runs the programs of a reply."""

    def __post_init__(self) -> None:
        settle_field(self, "worst_input", max(self.input, self.cache_write or 0))

    @classmethod
    def per_million(cls, given: Any, *, field: str) -> Price:
        """From dollars per million tokens: (input, output) or (input, output, cache_read, cache_write).

        A fifth figure is what a thousand searches of the web cost.
        """
        if isinstance(given, Price):
            return given
        if isinstance(given, str) or not hasattr(given, "__len__") or len(given) not in (2, 4, 5):
            raise ConfigurationError(f"{field} must be (input, output) in dollars per million tokens, not {given!r}")
        given = list(given)
        if given[0] is None or given[1] is None:
            raise ConfigurationError(f"{field} must give the prices of input and output, not {given!r:.100}")
        parts: list[Any] = [None if part is None else -(-pico(part, field=field) // 10**6) for part in given[:4]]
        search = 0 if len(given) < _PARTS or given[-1] is None else -(-pico(given[-1], field=field) // 1000)
        input_, output, read, write = [*parts, None, None][:4]
        return cls(input_, output, read, write, web_search=search)

    def surcharge(self, media: Media) -> int:
        """What sound and pictures cost more than text that is as long, in pico-dollars."""
        plain = self.input if self.cache_read is None else self.cache_read
        more = 0
        for fresh, cached, written, prices in (
            (media.audio_input, media.audio_cached, media.audio_output, _AUDIO),
            (media.image_input, media.image_cached, media.image_output, _IMAGE),
        ):
            own, read, output = (getattr(self, name) for name in prices)
            if own is not None:
                more += (fresh - cached) * max(0, own - self.input)
                more += cached * max(0, (own if read is None else read) - plain)
            if output is not None:
                more += written * max(0, output - self.output)
        return more

    @property
    def prices_media(self) -> bool:
        """True when sound or pictures cost otherwise than text."""
        return self.audio_input is not None or self.image_input is not None

    def reserve_media(self, media: Media) -> int:
        """Pico-dollars that sound and pictures of a prompt can cost at most, above what is reserved for it as text."""
        audio, image = max(0, (self.audio_input or 0) - self.worst_input), (self.image_input or 0) - self.worst_input
        return media.audio_input * audio + media.image_input * max(0, image)

    def at(self, input_tokens: int) -> Price:
        """The price of a call with a prompt of this length."""
        return self if self.tier is None or input_tokens <= (self.tier_start or 0) else self.tier

    def worst(self, input_tokens: int, output: int) -> int:
        """Pico-dollars of a call at most."""
        return input_tokens * self.worst_input + output * self.output

    def cost(self, usage: Usage) -> int:
        """Pico-dollars of a call."""
        if self.tier is not None and usage.input > (self.tier_start or 0):
            return self.tier.cost(usage)
        if not usage.cache_read and not usage.cache_write:
            return usage.input * self.input + usage.output * self.output
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
        cached = usage.cache_read * read + usage.cache_write * write
        return fresh * self.input + cached + usage.output * self.output
