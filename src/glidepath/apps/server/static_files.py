"""The page: whatever `make deck` has built into `static`, and what to run when there is nothing."""

from __future__ import annotations

import re
from mimetypes import guess_type
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
"""Where the built page is."""
MISSING = (
    "The flight deck's page is missing. Run `make deck-build` in the checkout (needs Node.js 20.19 or later), "
    "then install again unless you installed with `pip install -e`. The API works anyway: GET /openapi.json."
)
_HASHED = re.compile(r"[.-][A-Za-z0-9_-]{8,}\.[a-z0-9]+\Z")
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}


async def static_file(request: Request) -> Response:
    """A file of the page. Files whose name has a hash never change, and may be kept for a year."""
    name = request.path_params.get("path", "") or "index.html"
    folder = STATIC.resolve()
    try:
        path = (folder / name).resolve()
        found = path.is_relative_to(folder) and path.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        if name == "index.html":
            return Response(MISSING, 503, media_type="text/plain")
        return Response(b'{"error":{"code":"not_found","message":"there is no such file"}}', 404, _JSON)
    kind = _TYPES.get(path.suffix) or guess_type(path.name)[0] or "application/octet-stream"
    keep = "public, max-age=31536000, immutable" if _HASHED.search(path.name) else "no-cache"
    return Response(path.read_bytes(), headers={"content-type": kind, "cache-control": keep})


_JSON = {"content-type": "application/json"}
