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
    from glidepath.testing.upstream.damage import ON_THE_WIRE as ON_THE_WIRE, damage_pieces as damage_pieces
    from glidepath.testing.upstream.http_connection import (
        HttpConnection as HttpConnection,
        HttpReply as HttpReply,
        HttpRequest as HttpRequest,
    )
    from glidepath.testing.upstream.script import Fault as Fault

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        conduct=("CONDUCTS",),
        damage=("ON_THE_WIRE", "damage_pieces"),
        http_connection=("HttpConnection", "HttpReply", "HttpRequest"),
        script=("Fault",),
    )
