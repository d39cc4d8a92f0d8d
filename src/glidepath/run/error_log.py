"""What foreign code of a run raised, in the log: once for the same error at the same place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.values import log_raised, place_of

if TYPE_CHECKING:
    from glidepath.run.state import Run


def log_error(run: Run, what: str, error: BaseException, then: str = "", *, did: str = "") -> None:
    """Log that `what` raised, and what happens then; a hook that fails in every turn is one line."""
    if run.work.is_first((what, type(error).__name__, place_of(error))):
        log_raised(f"{run.run_id}: {what}", error, then, did=did, debug=run.plan.config.debug)
