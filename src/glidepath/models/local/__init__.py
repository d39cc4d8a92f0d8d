"""The embedded model: llama.cpp in its own process, and the files it runs."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.models.local.local_model import LocalModel
from glidepath.models.local.weights import KNOWN, Weights, cache_folder, find_weights_file, pull

__all__ = ["KNOWN", "LocalModel", "Weights", "cache_folder", "find_weights_file", "pull"]


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.models.local.local_prompt import make_brief as make_brief
    from glidepath.models.local.local_reply import ConstrainedReply as ConstrainedReply

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, local_prompt=("make_brief",), local_reply=("ConstrainedReply",))
