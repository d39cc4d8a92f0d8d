"""Reads datasets: Python, YAML, JSON lines, CSV. A line that cannot be used is named, and the others are kept."""

from __future__ import annotations

import csv
import io
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glidepath import _wire
from glidepath._wire import WireError
from glidepath.apps.evals.answer_checks import Matches, as_evaluators, check_pattern, read_evaluator
from glidepath.apps.evals.cases import LONGEST_ID, Case, Dataset, Unusable
from glidepath.values import ConfigurationError, describe_error, mend_text, message_of, require_extra, short_repr

if TYPE_CHECKING:
    import os

PROMPT, EXPECTED = ("prompt", "input", "question"), ("expected", "answer", "output")
"""What the columns may be called; the first is the name that messages use."""
_OTHER = ("id", "evaluator", "evaluators", "metadata", "name", "cases")
_KNOWN = frozenset({*PROMPT, *EXPECTED, *_OTHER})
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
MAX_BYTES = 200_000_000
KINDS = (".py", ".yaml", ".yml", ".jsonl", ".csv")
_Row = tuple[str, Any]
_YAML_TYPES = (
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ("~", "n", "N", "")),
    ("int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), "-+0123456789"),
    ("float", re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?\Z"), "-+0123456789"),
    ("merge", re.compile(r"<<\Z"), "<"),
)
"""All that PyYAML may read as anything but a text."""


def read_dataset(given: str | os.PathLike[str]) -> Dataset:
    """The dataset in a file; raises `ConfigurationError` when the file as a whole cannot be used."""
    path = Path(given).expanduser()
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ConfigurationError(f"{path}: a dataset is one of {', '.join(KINDS)}")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigurationError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB: split it")
        text = "" if kind == ".py" else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8: byte {error.start} cannot be read") from None
    if kind == ".py":
        return _run_python(path)
    head: Mapping[str, Any] = {}
    if kind == ".csv":
        rows: Iterator[_Row] = _read_csv(path, text)
    elif kind == ".jsonl":
        rows = _read_lines(text)
    else:
        head, rows = _read_yaml(path, text)
    return _make_dataset(path, head, rows)


def _run_python(path: Path) -> Dataset:
    """What a Python file calls `dataset`, or `cases`."""
    try:
        names = runpy.run_path(str(path), run_name=path.stem)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{path}: {describe_error(error)}") from error
    found = names.get("dataset", names.get("cases"))
    if callable(found):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"{path}: {describe_error(error)}") from error
    if isinstance(found, Dataset):
        return found
    if isinstance(found, list | tuple):
        return Dataset(found, name=path.stem)
    raise ConfigurationError(f"{path}: expected `dataset = Dataset([...])` or `cases = [Case(...), ...]` in it")


def _read_csv(path: Path, text: str) -> Iterator[_Row]:
    # Not `splitlines`, which also breaks a line where a text has a form feed or U+2028 in it.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    heads: list[str] | None = None
    while True:
        first = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _name_lines(first, reader.line_num), ValueError(f"it cannot be read: {error}")
            continue
        if heads is None:
            heads = [_name_field(one.strip()) for one in row]
            _check_columns(path, heads)
        elif any(row):
            where = _name_lines(first, reader.line_num)
            if len(row) > len(heads):
                yield where, ValueError(f"it has {len(row)} columns, and the first line {len(heads)}")
            else:
                yield where, {name: value for name, value in zip(heads, row, strict=False) if value != ""}


def _name_lines(first: int, last: int) -> str:
    """Where a row is: a text in quotes may have line breaks, and one whose quotes never end swallows the rest."""
    return f"line {first}" if first >= last else f"lines {first} to {last}"


def _name_field(name: str) -> str:
    """A field by the name that it has here: `Expected` that nobody reads would let every answer pass."""
    return name.lower() if name.lower() in _KNOWN else name


def _check_columns(path: Path, heads: Sequence[str]) -> None:
    if not any(name in heads for name in PROMPT):
        used = next((word for sign, word in _SEPARATORS.items() if any(sign in one for one in heads)), "")
        hint = f"; they are separated by {used}, save them with commas" if used else ""
        raise ConfigurationError(
            f"{path} has no column `{PROMPT[0]}` (or {' or '.join(PROMPT[1:])}): its columns are "
            f"{short_repr(', '.join(heads), 200) if used else ', '.join(heads) or 'none'}{hint}"
        )
    twice = sorted({name for name in heads if heads.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{path} has the column {twice[0]!r:.60} twice")


def _read_lines(text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", _wire.loads(line)
        except (WireError, ValueError, RecursionError) as error:
            yield f"line {number}", ValueError(f"it is not JSON: {error}")


def _read_yaml(path: Path, text: str) -> tuple[Mapping[str, Any], Iterator[_Row]]:
    yaml = require_extra("yaml", "a dataset in YAML needs PyYAML", "evals")
    try:
        found = yaml.load(text, _make_loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from None
    head: Mapping[str, Any] = {}
    if isinstance(found, dict):
        head = {name: value for name, value in found.items() if name != "cases"}
        unknown = sorted(str(name) for name in head if name not in ("name", "evaluators"))
        if unknown:
            raise ConfigurationError(f"{path}: there is no {unknown[0]!r:.60}: use name, evaluators and cases")
        found = found.get("cases")
    if not isinstance(found, list):
        raise ConfigurationError(f"{path}: expected a list of cases, or `cases:` with one")
    return head, ((f"case {number}", row) for number, row in enumerate(found, 1))


def _make_loader(yaml: Any) -> Any:
    """A safe loader that guesses as little as JSON: `yes`, `9:00`, `2024-01-01`, `007` are the texts they look like."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}

    for kind, pattern, starts in _YAML_TYPES:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", pattern, list(starts))
    return Loader


def _make_dataset(path: Path, head: Mapping[str, Any], rows: Iterator[_Row]) -> Dataset:
    name = head.get("name", path.stem)
    if not isinstance(name, str):
        raise ConfigurationError(f"{path}: name must be a text, not {short_repr(name, 60)}")
    shared = as_evaluators(f"{path}: evaluators", head.get("evaluators") or ())
    cases: list[Case] = []
    broken: list[Unusable] = []
    seen: dict[str, str] = {}
    count = 0
    for count, (where, given) in enumerate(rows, 1):
        row = {_name_field(str(key)): value for key, value in given.items()} if isinstance(given, dict) else given
        named = str(row["id"]) if isinstance(row, dict) and row.get("id") not in (None, "") else str(count)
        try:
            if isinstance(row, ValueError):
                raise row
            if named in seen:
                raise ValueError(f"the id {named!r:.80} is already used by {seen[named]}")
            case = _make_case(row, named)
        except (ValueError, ConfigurationError) as error:
            broken.append(Unusable(id=mend_text(named[:LONGEST_ID]), where=where, why=message_of(error)))
        else:
            cases.append(case)
            seen[named] = where
    if not count:
        raise ConfigurationError(f"{path} has no case")
    return Dataset(cases, name=name, evaluators=shared, unusable=broken)


def _make_case(row: object, named: str) -> Case:
    """The case in one row; raises ValueError or `ConfigurationError` with what is wrong."""
    if not isinstance(row, dict):
        raise ConfigurationError(f"it must be an object with a {PROMPT[0]}, not {short_repr(row, 60)}")
    fields = dict(row)
    prompt = next((fields.pop(name) for name in PROMPT if fields.get(name) not in (None, "")), None)
    if prompt is None:
        raise ValueError(f"it has no {PROMPT[0]}")
    if not isinstance(prompt, str):
        raise ConfigurationError(f"its {PROMPT[0]} must be a text, not {short_repr(prompt, 60)}")
    if not prompt.strip():
        raise ValueError(f"its {PROMPT[0]} is blank")
    expected = next((fields.pop(name) for name in EXPECTED if name in fields), None)
    fields.pop("id", None)
    said = fields.pop("evaluators", fields.pop("evaluator", None))
    several = said if isinstance(said, list) else [] if said is None else [said]
    evaluators = tuple([read_evaluator(one) for one in several])
    for one in evaluators:
        if isinstance(one, Matches) and one.pattern is None:
            check_pattern(EXPECTED[0], expected)
    metadata = fields.pop("metadata", {})
    if not isinstance(metadata, dict):
        raise ConfigurationError(f"its metadata must be an object, not {short_repr(metadata, 60)}")
    return Case(prompt=prompt, expected=expected, id=named, evaluators=evaluators, metadata={**fields, **metadata})
