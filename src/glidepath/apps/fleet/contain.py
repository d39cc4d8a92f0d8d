"""Contains DBOS: its import, its one instance per process, and its logger. Names that the whole fleet shares."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glidepath._sdk_privates import dbos_instance
from glidepath.values import ConfigurationError, errors

APPLICATION = "glidepath"
VERSION = "glidepath-1"  # of the workflow's arguments: workers of any release take each other's runs
WORKFLOW = "glidepath_run"
QUEUE = "glidepath."  # and the agent's name

LAYOUT = 1  # the version of the fleet's tables
PARTS = 6  # the version of what an older release tolerates: functions with the same signature, extra tables
FREED = "glidepath_freed"  # the channel for: a budget has room again
QUEUED = "glidepath_queued"  # the channel for: a run was queued
FLEET = "fleet"  # the name of the budget of all
NOW = "extract(epoch FROM clock_timestamp())::float8"

_busy = threading.Lock()
_log = logging.getLogger("glidepath")


class _Relay(logging.Handler):
    """Passes what DBOS logs to our own logger, at debug level unless it is critical."""

    def emit(self, record: logging.LogRecord) -> None:
        level = logging.ERROR if record.levelno >= logging.CRITICAL else logging.DEBUG
        _log.log(level, "dbos: %s", record.getMessage())


@contextmanager
def claim_process() -> Iterator[None]:
    """Inside the block this process has a worker, and DBOS prints nothing; its logger is restored afterwards.

    Raises `ConfigurationError` if the process has a worker already, or uses DBOS.
    """
    if not _busy.acquire(blocking=False):
        raise ConfigurationError("this process already has a worker: start another process for another worker")
    logger = logging.getLogger("dbos")
    before, level, propagates = logger.handlers[:], logger.level, logger.propagate
    try:
        if dbos_instance() is not None:
            raise ConfigurationError("this process already uses DBOS: give the worker its own process")
        logger.handlers[:], logger.propagate = [_Relay()], False
        logger.setLevel(logging.INFO)
        yield
    finally:
        logger.handlers[:], logger.propagate = before, propagates
        logger.setLevel(level)
        _busy.release()


def require_extra(module: str) -> Any:
    """The module; `ConfigurationError` naming the extra to install when it is missing."""
    return errors.require_extra(module, f"a fleet needs {module.partition('.')[0]}", "dbos")
