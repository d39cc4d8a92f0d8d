"""The landing: a reserve that is held from the start, a notice, a view that fits, one call, and a ladder of fallbacks.

`reserve` works out what the landing call will need and pays it; `notice` tells the model in time; `landing_view` cuts
the transcript to the reserve; `ladder` goes down step by step, whatever of that can be done: it makes the call, or
tells what was done without one. Other endings are in `endings`.
"""
