"""A run in the main thread; a tracer raises at the nth call of a function of asyncio, as a signal handler would."""

import os
import sys
import threading
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call

where, nth, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
met = []


class SoftLimitError(Exception):
    """What a signal handler raises, wherever the program happens to be."""


def trace(frame, what, _):
    if what == "call" and frame.f_code.co_name == where and "asyncio" in frame.f_code.co_filename:
        met.append(1)
        if len(met) == nth:
            raise SoftLimitError


@tool
async def look() -> str:
    """Look."""
    return "nothing"


def make(turns):
    return Agent(model=ScriptedModel(turns), tools=[look], limits=Limits(max_iterations=3), store=store)


store = SqliteStore(Path(folder, "runs.db"), lease=0.3)
late = threading.Timer(25, lambda: os._exit(9))
late.daemon = True
late.start()
agent = make([call("look"), "done"])
sys.settrace(trace)
try:
    said = agent.run_sync("go").outcome.name
except SoftLimitError:
    said = "raised"
finally:
    sys.settrace(None)
print(said, "hit" if len(met) >= nth else "missed", make(["done"]).run_sync("another").outcome.name, flush=True)
os._exit(0)
