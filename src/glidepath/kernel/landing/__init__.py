"""The landing: a reserve that is held from the start, a notice, a view that fits, one call, and a ladder of fallbacks.

`reserve` works out what the landing call will need and pays it; `notice` tells the model in time; `landing_view` cuts
the transcript to the reserve; `ladder` goes down step by step, whatever of that can be done: it makes the call, or
tells what was done without one. Other endings are in `endings`.
"""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.kernel.landing.landing_view import landing_view as landing_view

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, landing_view=("landing_view",))
