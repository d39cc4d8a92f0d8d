"""A form on the command line: one question for every field, each answer read as the field's type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.display_text import escape_invisible, wrap_lines
from glidepath.run import Decision, answer, approve, deny
from glidepath.values import PendingCall

if TYPE_CHECKING:
    from glidepath.apps.cli.approval_dialog import AskPerson

_YES, _NO = ("y", "yes", "true"), ("n", "no", "false")


async def fill_in(pending: PendingCall, width: int, ask: AskPerson) -> Decision | None:
    """A person's answer to a form, or their refusal; None when they left."""
    rows = list(wrap_lines(pending.reason, width))
    form = pending.form or {}
    properties = form.get("properties")
    fields = properties if isinstance(properties, Mapping) else {}
    if not fields:
        said = await ask(rows, "continue? y and Enter, or say why not: ", decides=True)
        if said is None:
            return None
        word = said.strip()
        return approve() if word.lower() in _YES else deny("" if word.lower() in ("", *_NO) else word)
    rows.append("The server decides what happens with your answer.")
    first = await ask(rows, "answer it? [y]es, [n]o: ", decides=True)
    if first is None:
        return None
    if first.strip().lower() not in _YES:
        return deny()
    given: dict[str, Any] = {}
    required = form.get("required") or ()
    for name, shape in fields.items():
        shape = shape if isinstance(shape, Mapping) else {}  # noqa: PLW2901 - the same, made safe
        found = await _ask_field(name, shape, ask, width, needed=name in required)
        if found is None:
            return None
        if found is not _LEFT_OUT:
            given[name] = found
    return answer(given)


_LEFT_OUT = object()


async def _ask_field(name: str, shape: Mapping[str, Any], ask: AskPerson, width: int, *, needed: bool) -> Any:
    """One answer, asked for until it can be read; None when the person left."""
    note: list[str] = []
    while True:
        said = await ask(
            [*_describe_field(name, shape, width), *note],
            f"{escape_invisible(name)}{'' if needed else ' (optional)'}: ",
        )
        if said is None:
            return None
        word = said.strip()
        if not word:
            if "default" in shape:
                return shape["default"]
            if not needed:
                return _LEFT_OUT
            note = ["It is needed."]
            continue
        try:
            return _read(word, shape)
        except ValueError as error:
            note = [str(error)]


def _describe_field(name: str, shape: Mapping[str, Any], width: int) -> list[str]:
    words = [str(shape.get("title") or name)]
    if shape.get("description"):
        words.append(str(shape["description"]))
    if isinstance(shape.get("enum"), list):
        words.append("one of " + ", ".join(map(str, shape["enum"])))
    if "default" in shape:
        words.append(f"default {shape['default']}")
    more = "" if len(words) == 1 else f" ({'; '.join(words[1:])})"
    return list(wrap_lines(words[0] + more, width))


def _read(word: str, shape: Mapping[str, Any]) -> Any:
    kind = shape.get("type")
    if isinstance(shape.get("enum"), list):
        fitting = [value for value in shape["enum"] if str(value).lower() == word.lower()]
        if not fitting:
            raise ValueError("It must be one of " + ", ".join(map(str, shape["enum"])) + ".")
        return fitting[0]
    if kind == "boolean":
        if word.lower() not in (*_YES, *_NO):
            raise ValueError("Answer yes or no.")
        return word.lower() in _YES
    if kind in ("integer", "number"):
        try:
            return int(word) if kind == "integer" else float(word)
        except ValueError:
            raise ValueError("It must be a number.") from None
    if kind == "array":
        return [part.strip() for part in word.split(",") if part.strip()]
    return word
