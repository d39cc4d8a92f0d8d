"""The protected files of a workspace, as a person declares them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence

from glidepath.values import ConfigurationError
from glidepath.workspace.protected_names import (
    GIT_PARTS,
    LINKABLE,
    ROWS,
    NameRules,
    fold_name,
    may_be_protected,
)

__all__ = ["GIT_PARTS", "LINKABLE", "ROWS", "Protection", "fold_name", "is_git_folder", "may_be_protected"]


class Protection(NameRules):
    """Which paths of a workspace are protected, and which of those a person allowed by name.

    `above` are the names of the folders the workspace is in: a protected path may begin there. `own` are paths in
    the workspace that belong to glidepath itself. `closed` says why nothing in the workspace may be written, if so.
    """

    def __init__(
        self,
        allowed: Iterable[str] = (),
        *,
        above: Sequence[str] = (),
        own: Iterable[Sequence[str]] = (),
        closed: str | None = None,
    ) -> None:
        if isinstance(allowed, (str, bytes)):
            raise ConfigurationError(
                f"allow_protected: expected a list of paths, got {allowed!r:.80}: put it in a list"
            )
        super().__init__(
            [_check_path(path) for path in allowed],
            [fold_name(name) for name in above],
            [[fold_name(step) for step in path] for path in own],
            closed,
        )


def _check_path(path: object) -> tuple[str, ...]:
    text = path if isinstance(path, str) else ""
    steps = [step for step in text.split("/") if step not in ("", ".")]
    if not steps or ".." in steps or text.startswith(("/", "~")):
        raise ConfigurationError(
            f"allow_protected: {path!r:.80} is not a path inside the workspace; write one such as '.vscode/tasks.json'"
        )
    return tuple(fold_name(step) for step in steps)


def is_git_folder(folder: int) -> bool:
    """True when git would take this open folder for a repository's own, whatever its name, or nearly would.

    Nearly, because the last missing part could be made by another tool.
    """
    return _is_there("HEAD", folder) and (
        _is_there("commondir", folder)
        or _is_there("refs", folder, stat.S_IFDIR)
        or _is_there("objects", folder, stat.S_IFDIR)
    )


def _is_there(name: str, folder: int, kind: int | None = None) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=kind is not None).st_mode
    except OSError:
        return False
    return kind is None or stat.S_IFMT(found) == kind
