"""What a server asks a person: as a form the run pauses with, and back as the server's answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.mcp.definitions import clean_text, make_legal_schema

if TYPE_CHECKING:
    from mcp.types import ElicitResult

_SECRET = re.compile(
    r"pass ?(word|wd|phrase|code)|secret|\btokens?\b|api ?key|credential|private ?key|\bpin\b|\bcvv\b|\bcvc\b|\bssn\b"
    r"|credit ?card|card ?number|social ?security|\botp\b|one ?time|(git ?hub|git ?lab|azure|devops) ?pat\b"
    r"|(seed|recovery|mnemonic) ?(phrase|words?|code)"
    r"|\b(2|two|multi) ?fa(ctor)?\b|\bmfa\b|\bt?otp\b|authenticat(or|ion) ?code|verification ?code|security ?code"
    r"|passwor[td]|kennwort|geheim|zugangsdaten|mot de passe|contrase(n|\u00f1)a|senha|wachtwoord|lozinka"
    r"|has(l|\u0142)o|salasana|l(o|\u00f6)senord|adgangskode|jelsz(o|\u00f3)|heslo|(s|\u015f)ifre|\u043f\u0430\u0440\u043e\u043b"
    r"|\u5bc6\u7801|\u5bc6\u78bc|\u53e3\u4ee4|\u30d1\u30b9\u30ef\u30fc\u30c9|\u6697\u8a3c\u756a\u53f7|\ube44\ubc00\ubc88\ud638"
    r"|\u0643\u0644\u0645\u0629 \u0627\u0644\u0645\u0631\u0648\u0631"
    r"|\u05e1\u05d9\u05e1\u05de|\u092a\u093e\u0938\u0935\u0930\u094d\u0921",
    re.IGNORECASE,
)
_SPACED = re.compile(r"\b(?:\w[ ._*-]+){3,}\w\b")
_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0501\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u03bf\u03b1",
    "aeopcyxisdABEKMHOPCTXoa",
)
"""Letters that pass for Latin ones."""
_WARNING = re.compile(r"\b(not|never|no|without|don't|avoid)\b[^.]*$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-.]+")
MOST_FIELDS = 50


class Question(Value, frozen=True, kw_only=True):
    """One thing a server asks a person: a form, or a visit to an address."""

    message: str
    form: Mapping[str, Any]
    url: str | None = None


def question_of(params: Any) -> Question | str:
    """The question in an elicitation request; a sentence when it must not be asked."""
    message = clean_text(params.message, 1_000)
    if params.mode == "url":
        url = clean_text(params.url, 2_000)
        if not url.startswith(("https://", "http://")):
            return "it asks a person to open an address that is not a web page"
        return Question(message=message, form={"type": "object", "properties": {}}, url=url)
    asked = "its message" if _is_asking_for_secret(message) and _takes_text(params.requested_schema) else None
    if (field := find_secret_field(params.requested_schema) or asked) is not None:
        return f"its form asks for a secret ({field}); a server must use URL mode for that"
    form, wrong = make_legal_schema(params.requested_schema)
    if wrong is not None:
        return f"its form cannot be shown: {wrong}"
    if len(form.get("properties", {})) > MOST_FIELDS:
        return f"its form has more than {MOST_FIELDS} fields"
    return Question(message=message, form=form)


def find_secret_field(schema: Mapping[str, Any]) -> str | None:
    """The first field of a form, or of a form inside it, that asks for a secret; None when there is none."""
    properties = schema.get("properties")
    for name, shown in properties.items() if isinstance(properties, Mapping) else ():
        said = [_CAMEL.sub(" ", str(name))]
        if isinstance(shown, Mapping):
            if (inner := find_secret_field(shown)) is not None:
                return inner
            if shown.get("format") == "password" or shown.get("writeOnly") is True:
                return clean_text(str(name), 60)
            said.append(str(shown.get("title", "")))
            if _is_asking_for_secret(clean_text(str(shown.get("description", "")), 500)):
                return clean_text(str(name), 60)
        if any(_search(clean_text(text, 500)) for text in said):
            return clean_text(str(name), 60)
    return None


def _search(text: str) -> re.Match[str] | None:
    """Where a text names a secret, in whatever letters it is written, or however far they stand apart."""
    plain = unicodedata.normalize("NFKC", text)
    for one in (plain, plain.translate(_ALIKE), _SPACED.sub(_join_spelled_word, plain.translate(_ALIKE))):
        if (found := _SECRET.search(one)) is not None:
            return found
    return None


def _join_spelled_word(found: re.Match[str]) -> str:
    return "".join(sign for sign in found[0] if sign.isalnum())


def _takes_text(schema: Mapping[str, Any]) -> bool:
    """True when a form has a field into which a person could type anything."""
    properties = schema.get("properties")
    fields = properties.values() if isinstance(properties, Mapping) else ()
    chosen = ("enum", "const", "oneOf", "anyOf")
    return any(
        isinstance(one, Mapping) and one.get("type") == "string" and not any(w in one for w in chosen) for one in fields
    )


def _is_asking_for_secret(description: str) -> bool:
    """True when a description asks for a secret, and does not warn against giving one."""
    found = _search(description)
    return found is not None and _WARNING.search(description[: found.start()]) is None


def combine_questions(server: str, tool: str, questions: Mapping[str, Question]) -> tuple[str, dict[str, Any]]:
    """The words and the form of one or several questions: one form, or one object for each question."""
    said = [
        f"{question.message} (open {question.url}, then approve)" if question.url else question.message
        for question in questions.values()
    ]
    reason = f"MCP server {server!r} asks, in the middle of {tool}: {' / '.join(said)}"
    if len(questions) == 1:
        return reason, dict(next(iter(questions.values())).form)
    parts = {name: {**question.form, "description": question.message} for name, question in questions.items()}
    required = [name for name, question in questions.items() if question.form.get("required")]
    return reason, {"type": "object", "properties": parts, "required": required}


def fill_defaults(form: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with the form's own default for every field that was left out."""
    properties = form.get("properties")
    shapes = properties if isinstance(properties, Mapping) else {}
    known = {name: shape for name, shape in shapes.items() if isinstance(shape, Mapping) and "default" in shape}
    return {**{name: shape["default"] for name, shape in known.items()}, **answer}


def answers_of(
    kinds: Mapping[str, str], answer: Mapping[str, Any], forms: Mapping[str, Any]
) -> dict[str, ElicitResult]:
    """What a person answered, question by question, as the server wants it."""
    from mcp.types import ElicitResult

    found: dict[str, ElicitResult] = {}
    for name, kind in kinds.items():
        content: Any = answer if len(kinds) == 1 else answer.get(name) or {}
        if kind == "url":
            found[name] = ElicitResult(action="accept")
        else:
            given = fill_defaults(forms.get(name) or {}, content)
            found[name] = ElicitResult(action="accept", content=_wire.loads(_wire.encode(given)))
    return found
