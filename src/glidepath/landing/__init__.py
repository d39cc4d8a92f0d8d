"""The landing: a reserve that is held from the start, a notice, a view that fits, one call, and a ladder of fallbacks.

`reserve` works out what the landing call will need and pays it; `notice` tells the model in time; `landing_view` cuts
the transcript to the reserve; `call` makes the call; `ladder` goes down step by step, whatever of that can be done;
`last_words` is what is left without any call. Other endings are in `endings`.
"""

from glidepath.landing.ladder import land
from glidepath.landing.landing_view import landing_view
from glidepath.landing.last_words import NO_ANSWER, fitted, not_executed, summary
from glidepath.landing.notice import wind_down
from glidepath.landing.reserve import book_landing, enough_to_land, landing_reserve, what_is_left

__all__ = [
    "NO_ANSWER",
    "book_landing",
    "enough_to_land",
    "fitted",
    "land",
    "landing_reserve",
    "landing_view",
    "not_executed",
    "summary",
    "what_is_left",
    "wind_down",
]
