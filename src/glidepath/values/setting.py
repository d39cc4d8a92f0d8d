"""What a setting is: declared once, with its type and default; everything else is derived.

`max_depth: int = setting("int", "how deep agents may be spawned", default=3, flag="--flag")` in `LoopConfig`, `Limits`
or `GuardrailsConfig` is the whole declaration. From it come the checks at construction, what a child inherits, the
warnings about settings that need another one, the methods of `AgentBuilder`, and, written out by
`scripts/make_keywords.py`, the keywords of `Agent` and these methods for editors, the rows of files, variables, flags
and schema, and the tables in the documentation.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, dataclass_transform, get_args

from glidepath._wire import UNSET, Declaration, Settings, settle_field
from glidepath.values.errors import ConfigurationError, close_to, short_repr
from glidepath.values.quantities import MEANT

TRUST = "trust"
"""Takes effect only in a trusted folder."""
FREE = "free"
"""A found file may set it to anything: it changes what is shown, or when the model is told to finish."""
LOWER = "lower"
"""A found file may set it to the default or less, and never switch it off."""
LOWER_NOT_ZERO = "lower, not zero"
"""As `LOWER`, where 0 would switch the guard off."""
HIGHER = "higher"
"""A found file may set it to the default or more."""
MORE = "more"
"""A list that forbids: a found file may add to it."""
INSIDE = "inside"
"""A path: a found file may name one inside its own folder."""

MOST = 10**15  # of anything that is counted: figures beyond it are calculated with nowhere
FOREVER = 1e300  # seconds: what no clock can count


class Passed(str, Enum):
    """Whether a child's configuration begins with its parent's value of a field."""

    YES = "yes"
    NO = "no"
    AS_EACH_SAYS = "as each says"
    IN_PART = "in part"


class Setting(NamedTuple):
    """One setting. `kind` says how its value is read and checked; it ends in `?` where None (or "off") is allowed."""

    kind: str
    help: str
    flag: str = ""
    seed: str = ""
    """Its key in older files; there 0 means off."""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    default: object = None
    """The command line's own default; None: the Python default holds."""
    zero_is_off: bool = False
    in_file: bool = True
    found: str | tuple[str, ...] = TRUST
    """What a file that nobody trusted may do with it: it may narrow. A tuple holds the words it may choose from."""
    python_only: str = ""
    """Why a file cannot have it."""
    inherited: Passed = Passed.YES
    needs: str = ""
    """The setting without which it has no effect."""
    wider: str = ""
    """What may be passed, where that is more than what is kept."""
    adds_up: bool = False
    """Setting it again on a builder adds to the earlier value."""
    in_python: str = ""
    """What it means to a program, where that is not what it means in a file."""
    see: str = ""
    """Where the documentation says more: a link."""
    most: int = MOST
    checked: bool = True
    """False for an object that is a name in a file: the code that uses it checks it."""
    key: str = ""
    """Its key in a file: set where the declaration is found."""
    python: str = ""
    """The class and field that hold it; empty for what only the command line has."""

    def is_narrower(self, value: object, now: object) -> bool:
        """True when this value allows no more than what holds now: all that an untrusted file or caller may ask for."""
        rule = self.found
        if isinstance(rule, tuple):
            return all(word in rule for word in (value if isinstance(value, tuple) else (value,)))
        if rule == MORE:
            return isinstance(value, tuple | list) and set(now or ()) <= set(value)  # type: ignore[call-overload]
        if rule == FREE or value == now:
            return rule != TRUST
        if value is None or rule == TRUST:
            return False
        if rule == HIGHER:
            return now is not None and Decimal(str(value)) >= Decimal(str(now))
        lower = now is None or Decimal(str(value)) <= Decimal(str(now))
        return lower and not (rule == LOWER_NOT_ZERO and value == 0)


def describe_setting(one: Setting) -> str:
    """What a setting means to a program, as the docstring of a builder's method."""
    text = (one.in_python or one.help).rstrip(".")
    more = (" They add up." if one.adds_up else "") + (f" Needs `{one.needs}`." if one.needs else "")
    return f"{text[0].upper()}{text[1:]}.{more}"


def setting(
    kind: str,
    help: str,  # noqa: A002
    *,
    default: object = UNSET,
    cli_default: object = None,
    **more: object,
) -> Any:
    """Declare a field of a `DeclaredSettings`; without a `default` it must be given. `more` as in `Setting`."""
    return Declaration(default, Setting(kind, help, default=cli_default, **more))  # type: ignore[arg-type] # any of its


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class DeclaredSettings(Settings, frozen=True, kw_only=True):
    """A frozen value whose fields are settings, each declared by `setting`; `settings_of` knows them all."""


_SECTIONS = {"LoopConfig": "", "Limits": "limits.", "GuardrailsConfig": "guardrails."}


@cache
def settings_of(owner: type[Settings]) -> Mapping[str, Setting]:
    """The settings of a class, by field and in their order; those of a class derived from it are the same."""
    home = _find_declaring_class(owner)
    section, name = _SECTIONS.get(home.__name__, ""), home.__name__
    fields: dict[str, Setting] = vars(home)["__declared__"]
    return {field: one._replace(key=f"{section}{field}", python=f"{name}.{field}") for field, one in fields.items()}


def _find_declaring_class(owner: type[Settings]) -> type[Any]:
    return next(kind for kind in owner.__mro__ if vars(kind).get("__declared__"))


@cache
def _list_checks(owner: type[Settings]) -> tuple[tuple[str, Callable[[str, Any, Setting], None], Setting, bool], ...]:
    """For each field that is checked here: how, and whether it may be None."""
    kinds = _find_declaring_class(owner).__annotations__
    return tuple(
        (name, _CHECKS[kind], setting, type(None) in get_args(kinds[name]))
        for name, setting in settings_of(owner).items()
        if (kind := setting.kind.removesuffix("?")) in _CHECKS and setting.checked
    )


@cache
def _find_parsers(owner: type[Settings]) -> tuple[tuple[str, Callable[[object], object]], ...]:
    """The fields whose values people write in more than one way, and what reads them."""
    every = settings_of(owner).items()
    return tuple((name, MEANT[kind]) for name, one in every if (kind := one.kind.removesuffix("?")) in MEANT)


def check_fields(config: Settings, prefix: str = "") -> None:
    """Raise `ConfigurationError` for the first field whose value is not of its kind; "10k" becomes its number."""
    for name, meant in _find_parsers(type(config)):
        given = getattr(config, name)
        if (value := meant(given)) is not given:
            settle_field(config, name, value)
    for name, check, setting, optional in _list_checks(type(config)):
        value = getattr(config, name)
        if value is not None:
            check(f"{prefix}{name}", value, setting)
        elif not optional:
            wanted = _NOT_NONE.get(setting.kind, "set")
            raise ConfigurationError(f"{prefix}{name} must be {wanted}, not None: the default is a good choice")


# --- one value ------------------------------------------------------------------------------------------------------


def check_int(field: str, value: object, *, least: int = 1, most: int = MOST, required: bool = False) -> None:
    """Raise `ConfigurationError` unless `value` is a whole number of at least `least` or, if not `required`, None."""
    if value is None and not required:
        return
    none = "" if required else ", or None for no limit"
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        wanted = f"of at least {least}" if most == MOST else f"from {least} to {most}"
        raise ConfigurationError(f"{field} must be a whole number {wanted}{none}; got {short_repr(value, 100)}")
    if value > most:
        said = "10**15" if most == MOST else most
        raise ConfigurationError(f"{field} must be at most {said}{none}; got a number of {value.bit_length()} bits")


def check_seconds(field: str, value: object, example: str = "30", *, required: bool = False) -> None:
    """Raise `ConfigurationError` unless `value` is a positive, finite number or, if not `required`, None."""
    if value is None and not required:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < FOREVER:  # NaN is not, either
        none = "" if required else ", or None for no limit"
        raise ConfigurationError(
            f"{field} must be a number of seconds greater than 0 such as {example}{none}; got {short_repr(value, 100)}"
        )


def check_sendable(field: str, text: str) -> None:
    """Refuse text that no store and no provider takes."""
    if "\0" in text:
        raise ConfigurationError(f"{field} contains a NUL character; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{field} has a lone surrogate at position {error.start}; remove it, or decode it properly"
        ) from None


def check_text(field: str, value: object) -> None:
    """Refuse what is not text, or cannot be sent."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{field} must be a str, not {type(value).__name__}")
    check_sendable(field, value)


def _check_int_setting(field: str, value: object, setting: Setting) -> None:
    check_int(field, value, most=setting.most, required=not setting.kind.endswith("?"))


def _count(field: str, value: object, setting: Setting) -> None:
    check_int(field, value, least=0, most=setting.most, required=not setting.kind.endswith("?"))


def _check_seconds_setting(field: str, value: object, setting: Setting) -> None:
    check_seconds(field, value, "30, a time such as '90s' or '1h30m'", required=not setting.kind.endswith("?"))


def _must_be(wanted: str, fits: Callable[[Any], bool]) -> Callable[[str, Any, Setting], None]:
    """The check of a kind whose values are right or wrong, and nothing in between."""

    def check(field: str, value: object, _: Setting) -> None:
        if not fits(value):
            raise ConfigurationError(f"{field} must be {wanted}, not {short_repr(value, 100)}")

    return check


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < FOREVER  # type: ignore[operator] # NaN is not, either


def _check_choice_setting(field: str, value: object, setting: Setting) -> None:
    if not isinstance(value, str) or value not in setting.choices:
        close = close_to(value, setting.choices) if isinstance(value, str) else None
        hint = f"; did you mean {close!r}?" if close else ""
        raise ConfigurationError(
            f"{field} must be one of {', '.join(setting.choices)}; got {short_repr(value, 100)}{hint}"
        )


def _check_text_setting(field: str, value: object, _: Setting) -> None:
    check_text(field, value)


_CHECKS: Mapping[str, Callable[[str, Any, Setting], None]] = {
    "int": _check_int_setting,
    "count": _count,
    "seconds": _check_seconds_setting,
    "number": _must_be("a finite number of at least 0", _is_number),
    "bool": _must_be("True or False", lambda value: isinstance(value, bool)),
    "choice": _check_choice_setting,
    "text": _check_text_setting,
    "table": _must_be("a mapping", lambda value: isinstance(value, Mapping)),
    "callable": _must_be("callable", callable),
}
_NOT_NONE = {
    "int": "a whole number",
    "count": "a whole number",
    "seconds": "a number of seconds",
    "bool": "True or False",
}
