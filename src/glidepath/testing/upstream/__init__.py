"""A scripted model provider on loopback: real HTTP, four dialects, tokens counted, faults on request.

`python -m glidepath.testing.upstream --behavior loop --port 8100 --log calls.jsonl` runs it as a process.
"""

from glidepath.testing.upstream.conduct import MARKER
from glidepath.testing.upstream.scripted_upstream import ScriptedUpstream
from glidepath.testing.upstream.truth import UpstreamCall, UpstreamUsage

__all__ = ["MARKER", "ScriptedUpstream", "UpstreamCall", "UpstreamUsage"]
