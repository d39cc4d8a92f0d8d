"""What of a call may be recorded: headers and queries by a list of what is allowed, bodies without credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from glidepath._wire import Raw, WireError, decoder, loads
from glidepath.apps.gate.known_agents import KNOWN
from glidepath.apps.gate.upstreams import CREDENTIALS

if TYPE_CHECKING:
    from glidepath.apps.gate.governing import Headers

_COMPARED = ("anthropic-beta", "anthropic-version", "openai-beta")
ALLOWED = frozenset(
    {"content-type", "user-agent", *_COMPARED}
    | {name for known in KNOWN for name in (*known.session, *known.agent, *known.parent)}
)
"""Headers of a request that are recorded: what it is, who sends it, whose call it is. No other ones, ever."""
ALLOWED_REPLY = frozenset({"content-type", "retry-after", "x-should-retry", "x-glidepath-landed"})
"""Headers of a reply that are recorded: what a client acts on."""
ALLOWED_QUERY = frozenset({b"beta", b"alt", b"api-version"})
SIDE_MEMBERS = ("metadata", "client_metadata", "user", "safety_identifier")
"""Members of a body that say who asks: what looks like a key in them is not recorded."""
_LEAST_SECRET = 8
_read_members = decoder(dict[str, Raw])
_LIKE_A_KEY = re.compile(
    r"(?:sk|pk|rk|xai|gsk)-[\w-]{12,}|(?:ghp|gho|ghs|github_pat|glpat|hf|xox[abps])[-_][\w-]{12,}|AIza[\w-]{20,}"
    r"|AKIA[A-Z0-9]{12,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|(?<=Bearer )[\w.~+/-]{8,}"
)
_SECRET_HEADER = re.compile(rb"auth|key|token|secret|cookie|password|credential")


def choose_headers(headers: Iterable[tuple[bytes, bytes]], allowed: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Those of the headers that are recorded, what looks like a key in them starred."""
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    return tuple([(name, star_keys(value)) for name, value in pairs if name in allowed])


def choose_query(query: bytes) -> str:
    """The parameters that are recorded."""
    kept = [part for part in query.split(b"&") if part.partition(b"=")[0] in ALLOWED_QUERY]
    return star_keys(b"&".join(kept).decode("latin-1"))


def find_secrets(headers: Headers, query: bytes) -> set[bytes]:
    """The credentials that a request brings: they are starred wherever else they occur."""
    found: set[bytes] = set()
    for name, value in headers:
        if name in CREDENTIALS or (_SECRET_HEADER.search(name) and name.decode("latin-1") not in ALLOWED):
            found |= {value.strip(), value.rpartition(b" ")[2].strip()}
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name not in ALLOWED_QUERY:
            found.add(value)
    return {one for one in found if len(one) >= _LEAST_SECRET}


def star_secrets(data: bytes, secrets: Iterable[bytes]) -> bytes:
    """The same bytes with stars in the place of every secret, as many as it had characters."""
    for one in secrets:
        if one in data:
            data = data.replace(one, b"*" * len(one))
    return data


def scrub_body(body: bytes, secrets: Iterable[bytes]) -> bytes:
    """A request's body as it is recorded: without the credentials it came with, or keys in what says who asks."""
    body = star_secrets(body, secrets)
    if not any(f'"{name}"'.encode() in body for name in SIDE_MEMBERS):
        return body
    try:
        found = _read_members(body)  # the conversation is not read for that
    except (WireError, ValueError, RecursionError):
        return body
    said = b" ".join([bytes(found[name]) for name in SIDE_MEMBERS if name in found]).decode("utf-8", "replace")
    return star_secrets(body, {one.encode() for one in _LIKE_A_KEY.findall(said) if len(one) >= _LEAST_SECRET})


def star_keys(text: str) -> str:
    """The same text with stars in the place of what looks like a key, as many as it had characters."""
    return _LIKE_A_KEY.sub(lambda found: "*" * len(found[0]), text)


def read_json(body: bytes) -> Any:
    """What a body says; its text where it is not JSON."""
    try:
        return loads(body)
    except (WireError, ValueError, RecursionError):
        return body.decode("utf-8", "replace")
