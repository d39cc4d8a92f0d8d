"""The error tree. `run()` returns a result whatever happens, so few of these ever reach a caller.

GlidepathError
+-- ConfigurationError         something is wrong before take-off; nothing was spent
|   +-- BuilderError           an AgentBuilder cannot be built; names the call that is missing
+-- ModelError                 what a model port may raise
|   +-- TransientError         worth another try: 5xx, dropped connection, overload
|   +-- RateLimitedError       worth another try after `retry_after` seconds
|   +-- EmptyResponseError     the stream ended before its first delta; tried again
|   +-- ContextOverflowError   the prompt does not fit the context window
|   +-- RejectedError          the provider will never accept this request
|   +-- RefusedError           the provider's policy refuses this request
|   +-- InconsistentHistoryError   the provider says the transcript is malformed
|   +-- BreakerOpenError       the model failed too often lately: it was not asked
+-- ToolError                  a tool failed; the model is told and the run continues
|   +-- FatalToolError         a tool failed in a way that ends the run
+-- StoreError                 a session store could not read or write
+-- QuotaError                 a fleet refused a run: its tenant or the fleet has used up what it may
+-- AskAgain                   raised by an output validator: the model is asked for another answer
+-- ItemsError                 what `Agent.map` was given stopped giving items
+-- RunNotCompleted            raised by `RunResult.unwrap()`; carries the result

RunInterrupted                 a KeyboardInterrupt: Ctrl-C ended `run_sync`; carries the result
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from enum import Enum
    from typing import Protocol

    class _Why(Protocol):
        @property
        def reason(self) -> str: ...

    class _EndedRun(Protocol):
        """A `RunResult`; that layer lies above this one."""

        @property
        def state(self) -> Enum: ...

        @property
        def outcome(self) -> Enum: ...

        @property
        def cause(self) -> _Why | None: ...


__all__ = [
    "AskAgain",
    "BreakerOpenError",
    "BuilderError",
    "ConfigurationError",
    "ContextOverflowError",
    "EmptyResponseError",
    "FatalToolError",
    "GlidepathError",
    "InconsistentHistoryError",
    "ItemsError",
    "ModelError",
    "QuotaError",
    "RateLimitedError",
    "RefusedError",
    "RejectedError",
    "RunInterrupted",
    "RunNotCompleted",
    "StoreError",
    "ToolError",
    "TransientError",
]


class GlidepathError(Exception):
    """Anything glidepath raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled with its fields: an error that cannot be read breaks the process pool it is raised in."""
        return _revive, (type(self), self.args, vars(self))


def _revive(kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]) -> BaseException:
    """The same error again. Its `__init__` is not asked: it takes other things than the text it makes of them."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class ConfigurationError(GlidepathError):
    """The configuration is wrong: raised before the first call, names the field and the fix."""


class BuilderError(ConfigurationError):
    """`AgentBuilder.build()` cannot finish: names the call that is missing."""


class ModelError(GlidepathError):
    """A model could not answer. Adapters raise only these kinds."""

    retryable: ClassVar[bool] = False


class TransientError(ModelError):
    """A passing fault (5xx, dropped connection, overload): retried, after `retry_after` seconds if given."""

    retryable: ClassVar[bool] = True

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimitedError(ModelError):
    """Too many requests: the call is retried after `retry_after` seconds."""

    retryable: ClassVar[bool] = True

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EmptyResponseError(ModelError):
    """The stream ended before its first delta: the call is retried."""

    retryable: ClassVar[bool] = True


class ContextOverflowError(ModelError):
    """The prompt is larger than the context window: the context is shaped, then tried once more."""


class RejectedError(ModelError):
    """The provider will never accept this request: never retried."""


class RefusedError(ModelError):
    """The provider's policy refuses this request: never retried."""


class InconsistentHistoryError(ModelError):
    """The provider says that the transcript is malformed: never retried."""


class BreakerOpenError(ModelError):
    """The model failed too often in a row: it was not asked. Raised by the runtime, never by a model."""


class ToolError(GlidepathError):
    """A tool failed: its message goes to the model as an error result and the run continues."""


class FatalToolError(ToolError):
    """A tool failed in a way that ends the run."""


class StoreError(GlidepathError):
    """A session store could not read or write. `kind` says why, in one word.

    busy (another owner), fenced (lost to another owner), conflict, missing, damaged, newer (written by a later release
    than this one), schema (written by a version too old to be read), full (disk), read_only, locked, repaired (a
    resume asks first), unavailable (anything else).
    """

    def __init__(self, message: str = "", *, kind: str = "unavailable") -> None:
        super().__init__(message)
        self.kind = kind


class QuotaError(GlidepathError):
    """A fleet refused to take a run: `budget` names what is used up, or is "kill switch" while one is thrown.

    Nothing was queued and nothing was spent.
    """

    def __init__(self, message: str = "", *, budget: str = "") -> None:
        super().__init__(message)
        self.budget = budget


class AskAgain(GlidepathError):  # noqa: N818 - not an error: what the model is told
    """Raised by an output validator: the answer is not good enough, and the text tells the model why."""


class ItemsError(GlidepathError):
    """The iterable that `Agent.map` was given failed: what it gave before has its results."""


class RunNotCompleted(GlidepathError):  # noqa: N818 - a public name fixed by the specification
    """`RunResult.unwrap()` was called on a run that did not complete; `result` says how it ended."""

    def __init__(self, result: _EndedRun) -> None:
        why = f": {result.cause.reason}" if result.cause else ""
        super().__init__(f"the run ended {result.state.name}/{result.outcome.name}{why}")
        self.result: Any = result


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C ended `run_sync`. The run has landed: `result` says how it ended, and its text is this error's text.

    It is a KeyboardInterrupt, so that a program that does not expect it ends as it always did.
    """

    def __init__(self, result: object) -> None:  # a RunResult; that layer lies above this one
        super().__init__(getattr(result, "text", ""))
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        """As `GlidepathError`."""
        return _revive, (type(self), self.args, vars(self))


@contextmanager
def translate_read_errors() -> Iterator[None]:
    """Read foreign objects at construction: whatever they raise becomes a `ConfigurationError`, except Ctrl-C."""
    try:
        yield
    except (GlidepathError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of a property, say: SystemExit must not end a program
        raise ConfigurationError(f"the configuration cannot be read: {describe_error(error)}") from error


# --- speaking of other people's objects -------------------------------------------------------------------------


def message_of(error: BaseException) -> str:
    """The message of any exception, safe to write; empty if it has none."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""
    return mend_text(text)


def mend_text(text: str) -> str:
    """The text with a replacement character for every lone surrogate: those cannot be written."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_DEEPEST = 3  # groups within groups whose errors are told


def describe_error(error: BaseException, depth: int = 0) -> str:
    """Type and message of any exception, even if its own text fails; of a group also its first three exceptions."""
    text = f"{type(error).__name__}: {message_of(error)}".removesuffix(": ")
    if not isinstance(error, BaseExceptionGroup) or depth == _DEEPEST:
        return text
    return f"{text}: {'; '.join(describe_error(one, depth + 1) for one in inner_errors(error)[:3])}"


def inner_errors(group: BaseExceptionGroup[Any]) -> Sequence[BaseException]:
    """The exceptions of a group, whatever its class has made of that attribute."""
    return BaseExceptionGroup.exceptions.__get__(group)  # type: ignore[no-any-return]


def short_repr(value: object, limit: int = 200) -> str:
    """The beginning of any object's repr, even if its repr fails."""
    try:
        return repr(value)[:limit]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"an object of type {type(value).__name__} that cannot be shown"


def close_to(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of the known names that was probably meant; None when none is like it."""
    try:
        from difflib import get_close_matches  # only needed when something is wrong, and slow to import
    except (ImportError, OSError):  # no file can be opened any more: do without the hint
        return None
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def require_extra(module: str, says: str, extra: str) -> Any:
    """The module of an optional package; if it cannot be imported, a `ConfigurationError` `says` who needs it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        absent = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        why = (
            "" if absent else f", which cannot be imported ({describe_error(error)})"
        )  # it is there, and lacks something
        raise ConfigurationError(f"{says}{why}: {install_line(extra)}") from (None if absent else error)


def install_line(extra: str, *more: str) -> str:
    """The command that installs an extra where glidepath came from: a checkout, a wheel, a repository, or an index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    tool, tail = _name_installer(), "".join(f" {name}" for name in more)
    try:
        known = json.loads(distribution("glidepath").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        known = _source_folder()
    except (OSError, ValueError):
        known = {}
    url = known.get("url") if isinstance(known, dict) else None
    if not isinstance(url, str):
        return f"{tool} 'glidepath[{extra}]'{tail}"
    if url.startswith("file://") and "dir_info" in known:
        from urllib.parse import unquote

        editable = "-e " if _part(known, "dir_info").get("editable") else ""
        return f"{tool} {editable}'{unquote(url.removeprefix('file://'))}[{extra}]'{tail}"
    if version := _part(known, "vcs_info"):
        url = f"{version.get('vcs')}+{url}@{version.get('commit_id')}"
    return f"{tool} 'glidepath[{extra}] @ {url}'{tail}"


def _name_installer() -> str:
    """What adds a package to the environment that this runs in: one of pipx or uv has no pip of its own."""
    import sys
    from importlib.util import find_spec
    from pathlib import Path
    from shlex import quote

    if (Path(sys.prefix) / "pipx_metadata.json").is_file():
        return f"pipx inject {quote(Path(sys.prefix).name)}"
    return "pip install" if find_spec("pip") else f"uv pip install --python {quote(sys.executable)}"


def _part(known: dict[str, object], name: str) -> dict[str, object]:
    part = known.get(name)
    return part if isinstance(part, dict) else {}


def _source_folder() -> dict[str, object]:
    """The checkout this file is in, as pip would note it; nothing where it is not in one."""
    from pathlib import Path

    folder = Path(__file__).absolute().parents[3]
    known = (folder / "pyproject.toml").is_file()
    return {"url": folder.as_uri(), "dir_info": {"editable": True}} if known else {}
