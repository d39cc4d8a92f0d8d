"""`glidepath deck export`: one run and the page that shows it, in one file that opens offline."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from glidepath import _wire
from glidepath._version import VERSION
from glidepath.apps.server.locks import OPERATOR
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.static_files import STATIC
from glidepath.apps.server.store_reader import StoreReader
from glidepath.values import ConfigurationError

_SCRIPT = re.compile(r'<script[^>]*\bsrc="([^"]+)"[^>]*></script>')
_STYLE = re.compile(r'<link[^>]*\brel="stylesheet"[^>]*\bhref="([^"]+)"[^>]*>')
_LINKS = re.compile(r"<link[^>]*>")
_MOST_TURNS, _PAGE, _MOST_SPANS = 300, 1000, 100_000
MISSING = (
    "the flight deck's page is missing: run `make deck-build` in the checkout (needs Node.js 20.19 or later), "
    "then install again unless you installed with `pip install -e`"
)


async def export_run(reader: StoreReader, name: str) -> dict[str, Any]:
    """All that the page would ask about a run; raises `HttpError`."""
    found = await reader.find(name, OPERATOR)
    detail = await reader.detail(name, OPERATOR)
    feed = found.feed
    events: list[Any] = []
    while feed is not None and (lines := await feed.lines(len(events), _PAGE)):
        events += [_wire.Raw(line) for line in lines]
    messages = await reader.messages(name, OPERATOR, 0, 1_000_000)
    records = await reader.records(name, OPERATOR, 0, 1_000_000)
    turns = {}
    for turn in range(min(detail.turn, _MOST_TURNS) + 1) if records["total"] else ():
        try:
            turns[str(turn)] = await reader.read_state_at(name, OPERATOR, turn)
        except HttpError:
            break
    return {
        "info": {"version": VERSION, "role": "view", "agents": [], "store": "export", "demo": False},
        "exported": time.time(),
        "run": detail,
        "events": events,
        "messages": messages["messages"],
        "journal": records["records"],
        "turns": turns,
        "burn": await reader.burn(name, OPERATOR),
        "timeline": await reader.timeline(name, OPERATOR, 0, _MOST_SPANS, "time"),
    }


def export_page(data: dict[str, Any], folder: Path = STATIC) -> str:
    """The built page with everything inside; its CSP names its script and its style by hash and allows nothing else."""
    try:
        page = (folder / "index.html").read_text(encoding="utf-8")
    except OSError:
        raise ConfigurationError(MISSING) from None
    scripts = [_read(folder, name).replace("</script", "<\\/script") for name in _SCRIPT.findall(page)]
    styles = [_read(folder, name).replace("</style", "<\\/style") for name in _STYLE.findall(page)]
    if not scripts:
        raise ConfigurationError(MISSING)
    policy = (
        f"default-src 'none'; script-src {_hash_parts(scripts)}; style-src {_hash_parts(styles)}; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    told = _wire.encode(data).decode().replace("<", "\\u003c")
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    body = f'<script type="application/json" id="glidepath-export">{told}</script>'
    body += "".join(f'<script type="module">{script}</script>' for script in scripts)
    head += "".join(f"<style>{style}</style>" for style in styles)
    page = _LINKS.sub("", _SCRIPT.sub("", page))
    before, _, rest = page.partition("</head>")
    inside, _, end = rest.rpartition("</body>")
    charset, sign, after = before.partition("<meta charset")
    first = after.index(">") + 1 if sign else 0
    start = f"{charset}{sign}{after[:first]}" if sign else before
    return f"{start}{head}{after[first:] if sign else ''}</head>{inside}{body}</body>{end}"


def _read(folder: Path, name: str) -> str:
    return (folder / name.removeprefix("./").lstrip("/")).read_text(encoding="utf-8")


def _hash_parts(parts: list[str]) -> str:
    found = [b64encode(sha256(part.encode()).digest()).decode() for part in parts]
    return " ".join(f"'sha256-{one}'" for one in found) or "'none'"
