"""Keys of model providers in the keyring of the system, where the package keyring is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from glidepath.values import ConfigurationError, close_to, describe_error

SERVICE = "glidepath"


def variable_of(provider: str) -> str:
    """The variable that holds a provider's key; raises `ConfigurationError` for one that has none."""
    from glidepath.models.hosts import HOSTS

    host = HOSTS.get(provider)
    if host is None:
        meant = close_to(provider, HOSTS)
        hint = f"; did you mean {meant}?" if meant else ": `glidepath models` lists them"
        raise ConfigurationError(f"there is no provider {provider!r:.80}{hint}")
    if not host.key:
        raise ConfigurationError(f"{provider} needs no key")
    return host.key


def keep_key(provider: str, key: str | None) -> None:
    """Keep it, or with None forget it; raises `ConfigurationError` where there is no keyring."""
    name = variable_of(provider)
    keyring = _keyring()
    if keyring is None:
        raise ConfigurationError(f"keys are kept by the package keyring: pip install keyring, or set {name}")
    try:
        if key is None:
            keyring.delete_password(SERVICE, name)
        else:
            keyring.set_password(SERVICE, name, key)
    except Exception as error:
        raise ConfigurationError(f"the keyring refused: {describe_error(error)}; set {name} instead") from error


def read_key(name: str) -> str | None:
    """The key that is kept under a variable's name; None without one, and where no keyring answers."""
    keyring = _keyring()
    if keyring is None:
        return None
    try:
        found: str | None = keyring.get_password(SERVICE, name)
    except Exception:
        return None
    return found


def _keyring() -> Any:
    if find_spec("keyring") is None:
        return None
    import keyring

    return keyring
