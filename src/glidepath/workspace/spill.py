"""Big results: kept as files, with their beginning in the transcript and a tool to read on."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Annotated, ClassVar

from glidepath._wire import Meta
from glidepath.spi import AfterDecision, Plugin, ToolResultContext
from glidepath.tools import tool
from glidepath.values import ConfigurationError, ToolError, check_int

_NAME = re.compile(r"[0-9a-f]{32}")
_PAGE = 8_000
_TOOL = "read_result"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SpillResults(Plugin):
    """Keeps results of more than `over` characters in `folder`; a model sees their beginning, and a tool reads on.

    `Agent(tools=[*tools, spill.tool], plugins=[spill])`. A result is spilled before it joins the transcript, so that no
    provider's cache loses anything. A file is named after what is in it, complete before the transcript names it, and
    readable by you alone; a run that is resumed finds it again. Nothing deletes it but you.
    """

    name = "spill_results"
    inheritable_to_child: ClassVar[bool | None] = False

    def __init__(self, folder: str | os.PathLike[str], *, over: int = 20_000, shown: int = 2_000) -> None:
        check_int("SpillResults.over", over, required=True)
        check_int("SpillResults.shown", shown, required=True)
        if shown >= over:
            raise ConfigurationError(f"SpillResults.shown={shown} must be less than over={over}")
        self._over, self._shown = over, shown
        self._folder = Path(folder)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._folder, _FOLDER))
        except OSError as error:
            raise ConfigurationError(f"SpillResults: {str(folder)!r:.100} cannot be used: {error.strerror}") from None
        self.tool = tool(self._read_result, name=_TOOL, read_only=True, untrusted=True, idempotent=True)

    def after_tool_call(self, context: ToolResultContext) -> AfterDecision | None:
        """Keep a result that is too big, and show its beginning."""
        content = context.result.content
        if not isinstance(content, str) or len(content) <= self._over or context.call.name == _TOOL:
            return None
        name = self._keep(content)
        if name is None:  # the disk is full, or the folder is gone: the result is cut as any other
            return None
        note = f"{_TOOL}(result='{name}', start={self._shown})"
        return AfterDecision(
            content=f"{content[: self._shown]}\n[{len(content) - self._shown} of {len(content)} characters are kept "
            f"apart. To read on: {note}]"
        )

    def _keep(self, content: str) -> str | None:
        data = content.encode("utf-8", "surrogatepass")
        name = hashlib.sha256(data).hexdigest()[:32]
        part = f".{name}.{secrets.token_hex(4)}"
        try:
            folder = os.open(self._folder, _FOLDER)
        except OSError:
            return None
        try:
            file = os.open(part, _NEW, 0o600, dir_fd=folder)
            with os.fdopen(file, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError:
            return None
        finally:
            os.close(folder)
        return name

    async def _read_result(
        self,
        result: Annotated[str, Meta(description="the name in the note at the end of a result")],
        start: Annotated[int, Meta(description="the first character")] = 0,
        length: Annotated[int, Meta(description="how many characters, at most 8000")] = _PAGE,
    ) -> str:
        """Read more of a result that was too big to show."""
        if not _NAME.fullmatch(result):
            raise ToolError(f"there is no result {result!r:.80}: use the name in the note at the end of a result")
        if start < 0 or length < 1:
            raise ToolError(f"start must be at least 0 and length at least 1; got {start} and {length}")
        try:
            folder = os.open(self._folder, _FOLDER)
            try:
                file = os.open(result, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            finally:
                os.close(folder)
            with os.fdopen(file, "rb") as kept:
                text = kept.read().decode("utf-8", "surrogatepass")
        except OSError:
            raise ToolError(f"the result {result} is gone: make the call again if it is safe to repeat") from None
        end = min(start + min(length, _PAGE), len(text))
        if start >= len(text):
            raise ToolError(f"the result has {len(text)} characters; start={start} is behind its end")
        more = f"{len(text) - end} more: {_TOOL}(result='{result}', start={end})" if end < len(text) else "the end"
        return f"{text[start:end]}\n[{more}]"
