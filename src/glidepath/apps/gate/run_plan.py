"""Where `gate run` sends calls: the upstreams, and whose credentials go there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from glidepath.apps.gate.launchers import VENDORS, Aim, VendorVariables
from glidepath.apps.gate.upstreams import VENDORS as ADDRESSES, Upstream
from glidepath.apps.server.locks import is_loopback
from glidepath.values import ConfigurationError, close_to


def plan_upstreams(
    said: Sequence[str], environ: Mapping[str, str], *, passthrough: bool = False
) -> tuple[Upstream, ...]:
    """The upstreams of a run; raises `ConfigurationError`.

    With `--upstream` they are those, in mode swap. Without it each vendor's own address, or the base URL that the
    environment names: in swap where the vendor's key is in the environment and no login is, else passed through.
    """
    if not said:
        return tuple([_plan_vendor(name, vendor, environ, passthrough) for name, vendor in VENDORS.items()])
    urls: dict[str, str] = {}
    for one in said:
        urls.update(_read_flag(one))
    return tuple([_plan_given(name, url, environ, passthrough) for name, url in urls.items()])


def make_aims(upstreams: Sequence[Upstream], url: str, secret_url: str, key: str) -> dict[str, Aim]:
    """Where the command finds each vendor: all of them, so that none is called past the gate by accident."""
    modes = {one.dialect: one.mode for one in upstreams}
    usual = "swap" if "swap" in modes.values() else "passthrough"
    aims = {name: modes.get(name, usual) for name in VENDORS}
    ordered = sorted(aims.items(), key=lambda pair: (pair[0] not in modes, pair[1] != "swap"))
    return {name: Aim(url, key) if mode == "swap" else Aim(secret_url, None, url, key) for name, mode in ordered}


def list_own_vendors(upstreams: Sequence[Upstream]) -> list[str]:
    """The vendors among the upstreams that are called at their own addresses."""
    return [one.dialect for one in upstreams if urlsplit(one.url)[:2] == urlsplit(ADDRESSES.get(one.dialect, ""))[:2]]


def _read_flag(said: str) -> dict[str, str]:
    name, sign, url = said.partition("=")
    if not sign or "/" in name:  # an address may have a = in its path
        return dict.fromkeys(VENDORS, said)
    if name not in VENDORS:
        meant = close_to(name, VENDORS)
        hint = f"; did you mean {meant}?" if meant else ""
        raise ConfigurationError(f"--upstream {said:.80}: {name!r:.40} is not one of {', '.join(VENDORS)}{hint}")
    return {name: url}


def _plan_given(name: str, url: str, environ: Mapping[str, str], passthrough: bool) -> Upstream:
    if passthrough:
        return Upstream(name, name, url, "passthrough")
    plain = Upstream(name, name, url)  # says what is wrong with the address itself
    key, auth = _find_key(VENDORS[name], environ)
    if key is not None and not _is_safe(plain.url):
        raise ConfigurationError(
            f"--upstream {url:.80} would get {key.partition(':')[2]} in the clear: use https or a loopback address, or "
            "take the variable away"
        )
    return Upstream(name, name, url, "swap", key, auth)


def _plan_vendor(name: str, vendor: VendorVariables, environ: Mapping[str, str], passthrough: bool) -> Upstream:
    url = next((environ[one] for one, _ in vendor.urls if environ.get(one)), ADDRESSES[name])
    key, auth = _find_key(vendor, environ)
    has_login = any(environ.get(one) for one in vendor.logins)
    if key is not None and not has_login and not passthrough and _is_safe(url):
        return Upstream(name, name, url, "swap", key, auth)
    return Upstream(name, name, url, "passthrough" if _is_safe(url) else "swap")


def _find_key(vendor: VendorVariables, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The reference of the vendor's key in the environment, and how it is sent."""
    for names, auth in ((vendor.keys, None), (vendor.bearers, "bearer")):
        found = next((one for one in names if environ.get(one, "").strip()), None)
        if found is not None:
            return f"env:{found}", auth
    return None, None


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")
