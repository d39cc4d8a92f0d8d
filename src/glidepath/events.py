"""What happened, in the past tense. Events are the only output of the loop."""

from glidepath.values.events import *  # noqa: F403 - a new event is declared there, and nowhere else
from glidepath.values.events import __all__  # noqa: F401
