"""The system prompt of the command line's own: who the model works for, in which folder, on which day."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.apps.cli.display_text import escape_invisible

if TYPE_CHECKING:
    from glidepath.apps.cli.layers import LoadedSettings

PROMPT = "system_prompt"


def has_own_prompt(settings: LoadedSettings) -> bool:
    """Whether nobody has set another one."""
    return PROMPT in settings.known and settings.origin_of(PROMPT) == "default"


def write_own_prompt(template: str, folder: Path) -> str:
    """The prompt of this day and folder. What looks like a placeholder in the name of the folder is not one."""
    today = date.today().isoformat()  # noqa: DTZ011 - the day where the people are
    return template.replace("{date}", today).replace("{folder}", escape_invisible(str(folder)), 1)
