"""A scripted model provider on loopback: real HTTP, four dialects, tokens counted, faults on request.

`python -m glidepath.testing.upstream --behavior loop --port 8100 --log calls.jsonl` runs it as a process.
"""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.testing.upstream.conduct import MARKER
from glidepath.testing.upstream.scripted_upstream import ScriptedUpstream
from glidepath.testing.upstream.truth import UpstreamCall, UpstreamUsage

__all__ = ["MARKER", "ScriptedUpstream", "UpstreamCall", "UpstreamUsage"]


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.testing.upstream.conduct import CONDUCTS as CONDUCTS
    from glidepath.testing.upstream.http_connection import HttpConnection as HttpConnection

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, conduct=("CONDUCTS",), http_connection=("HttpConnection",))
