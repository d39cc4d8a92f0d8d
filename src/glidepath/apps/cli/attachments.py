"""Files that go with a message: `@path` in what a person types, `-i picture.png` on the command line."""

from __future__ import annotations

import os
import re
from codecs import getincrementaldecoder
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.tools import QuoteFrame
from glidepath.values import ConfigurationError, ImageBlock, TextBlock, ToolError, UserMessage, pluralize
from glidepath.workspace import Workspace

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext

_NAMED = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_TYPED = re.compile(r'(?:(?<!\S)@"[^"]*|\S*)$')
_KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_MOST, _MOST_PICTURE = 256_000, 20_000_000
_MOST_FOUND = 50
_STOPS = ".,;:!?)'\""
RAN, INTERRUPTED = "Before this message, I ran `", "I interrupted your last reply, which began:"
_SENT_ALONG = ("<file-", '<file path="', RAN, INTERRUPTED)
ASIDE = "sent along"
"""The origin of what goes with a message and was neither typed nor named: what a command printed, a reply cut off."""


def load_picture(path: Path) -> ImageBlock:
    """A picture from a file; raises `ConfigurationError`."""
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise ConfigurationError(f"{path} is not a picture: use a file that ends in {', '.join(_KINDS)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > _MOST_PICTURE:
        raise ConfigurationError(f"{path} has {len(data):,} bytes; at most {_MOST_PICTURE:,} can be sent")
    return ImageBlock(kind, data=data)


def attach_pictures(text: str, pictures: Sequence[ImageBlock], more: Sequence[TextBlock] = ()) -> str | UserMessage:
    """A message with pictures and with text that others wrote; the bare text without any."""
    return UserMessage((*pictures, TextBlock(text), *more)) if pictures or more else text


def load_pictures(names: Sequence[str], world: CliContext) -> list[ImageBlock]:
    """The pictures that `-i` names, for the first message of a chat; a note says so. Raises `ConfigurationError`."""
    found = [load_picture(world.folder / name) for name in names]
    for name, one in zip(names, found, strict=True):
        world.note(f"{name}: a picture of {len(one.data or b''):,} bytes, sent with your first message")
    return found


def read_typed_part(text: str) -> str:
    """What a person typed of a message: it comes first, before files and whatever else was sent with it."""
    return text[: min([at for mark in _SENT_ALONG if (at := text.find(f"\n\n{mark}")) >= 0], default=len(text))]


def attach_files(
    text: str, workspace: Workspace, along: Sequence[str | ImageBlock] = (), origin: str = ""
) -> tuple[str | UserMessage, list[str]]:
    """What is sent for a text in which files are named with @, and a line about each of them.

    Only files in the workspace are sent. A word such as @someone that is not a file stays a word. Texts that are sent
    `along` name no files: the person did not type them. Each file is in a frame that it cannot close, and neither files
    nor what is sent along count as the person's own words. A text with an `origin` is not theirs, and names no files.
    """
    frame = QuoteFrame()
    pieces: list[TextBlock] = []
    pictures = [one for one in along if isinstance(one, ImageBlock)]
    said: list[str] = []
    for name in dict.fromkeys(match[1] or match[2] for match in _NAMED.finditer("" if origin else text)):
        path = _find_existing_path(name, workspace)
        if path is None:
            if _is_folder(name, workspace):
                said.append(f"@{name}: a folder, sent as a word: name a file in it")
            elif "/" in name or "." in name.strip("."):
                said.append(f"@{name}: there is no such file in the workspace; sent as a word")
            continue
        try:
            if Path(path).suffix.lower() in _KINDS:
                with workspace.file(path) as found:
                    data = os.pread(found, _MOST_PICTURE, 0)
                pictures.append(ImageBlock(_KINDS[Path(path).suffix.lower()], data=data))
                said.append(f"@{path}: a picture of {len(data):,} bytes")
                continue
            with workspace.file(path) as found:
                data = os.pread(found, _MOST + 1, 0)
            content = getincrementaldecoder("utf-8")().decode(data[:_MOST], final=len(data) <= _MOST)
        except (ToolError, OSError) as error:
            said.append(f"@{path}: {error}")
            continue
        except UnicodeDecodeError:
            content = "\0"
        if "\0" in content:
            said.append(f"@{path}: not sent, because it is {'binary' if 0 in data else 'not UTF-8 text'}")
            continue
        cut = " (the beginning)" if len(data) > _MOST else ""
        pieces.append(TextBlock(f"\n\n{frame.file(path, content)}", (f"@{path}",)))
        lines = len(content.splitlines())
        said.append(f"@{path}: {pluralize(lines, 'line', f'{lines:,}')}{cut}")
    pieces += [TextBlock(f"\n\n{one}", (ASIDE,)) for one in along if isinstance(one, str)]
    if origin:
        return UserMessage((*pictures, TextBlock(text), *pieces), origins=(origin,)), said
    return attach_pictures(text, pictures, pieces), said


def _find_existing_path(name: str, workspace: Workspace) -> str | None:
    """The path that was meant: punctuation after it in a sentence is not part of it."""
    for path in (name, name.rstrip(_STOPS)):
        try:
            with workspace.file(path):
                return path
        except (ToolError, OSError, ValueError):
            continue
    return None


def _is_folder(name: str, workspace: Workspace) -> bool:
    folder = workspace.root / name.rstrip(_STOPS)
    try:
        return folder.is_dir() and folder.resolve().is_relative_to(workspace.root.resolve())
    except (OSError, ValueError):
        return False


def last_word_of(line: str) -> str:
    """The last word of a line; a file in quotes that are still open is one word."""
    found = _TYPED.search(line)
    return "" if found is None else found[0]


def files_to_name(word: str, root: Path) -> list[str]:
    """Completions of an @file, in quotes if there are spaces in them."""
    found = files_like(word.removeprefix("@").removeprefix('"'), root)
    if not word.startswith('@"') and not any(" " in path for path in found):
        return [f"@{path}" for path in found]
    return [f'@"{path}' if path.endswith("/") else f'@"{path}"' for path in found]


def files_like(start: str, root: Path) -> list[str]:
    """Paths in the workspace that begin so; folders end in a slash."""
    above, _, begun = start.rpartition("/")
    folder = root / above
    try:
        if not folder.resolve().is_relative_to(root.resolve()):
            return []
        with os.scandir(folder) as listed:
            found = [
                f"{above}/{entry.name}".lstrip("/") + ("/" if entry.is_dir() else "")
                for entry in listed
                if entry.name.startswith(begun) and (begun.startswith(".") or not entry.name.startswith("."))
            ]
    except OSError:
        return []
    return sorted(found)[:_MOST_FOUND]
