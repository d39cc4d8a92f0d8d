"""What the documentation site is made of besides docs/: a hook of mkdocs (see mkdocs.yml), run by `make docs`.

Pages are written to be read in the repository, too. For the site this hook makes the navigation from the headings and
links of docs/index.md, gives every file of the repository that a page links to a page of its own, adds a reference
page for each public module and one with the JSON Schemas, and translates what repository hosts and mkdocs read
differently.
"""

import importlib
import json
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any, Union

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).resolve().parent))
from site_reference import LOW, load_script, module_page
from site_tabs import with_tabs

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
ITEM = re.compile(r"^- \[([^\]]+)\]\(([^)\s]+)\)")
TEST = re.compile(r"`(test_\w+)`")
FENCE = re.compile(r"^(```)(.*)$")
LISTED = re.compile(r"^(?:[-*] |\d+\. )")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".txt": "text"}
TOLD_WHOLE = ("Start", "Guides", "Reference")
"""The tabs whose pages are in llms-full.txt."""
_BEHIND = (
    "adr/ history/ repository/ releasing house-tour campaigns benchmarks guarantees contracts guards-measured "
    "crash-test mcp-conformance every-interleaving"
)
INNER = tuple(_BEHIND.split())
"""Pages that a search shall find after the guides."""
MENU = "<!-- navigation:"
REMOTE = "https://unpkg.com/iframe-worker/shim"
QUIET = "---\nhide: [navigation, toc]\nsearch:\n  exclude: true\n---\n"
SCHEMAS = {
    "The configuration file": "glidepath.apps.cli.settings_schema:json_schema",
    "A result": "glidepath.outcome:RunResult",
    "An event": "glidepath.values.events:EVENTS",
    "A message": "glidepath.messages:Message",
}


def public_modules() -> list[str]:
    """The modules whose `__all__` is public, as scripts/make_surface.py lists them."""
    return list(load_script("make_surface").MODULES)


# --- where a file of the repository stands on the site ------------------------------------------------------------


def site_uri(path: str) -> str:
    """The page of a file, given its path in the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "readme.md"
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def repository_path(page_uri: str) -> str:
    """The path in the repository of what a page was made from."""
    if page_uri == "readme.md":
        return "README.md"
    return page_uri.removeprefix("repository/") if page_uri.startswith("repository/") else f"docs/{page_uri}"


def linked(text: str, path: str) -> list[str]:
    """The files of the repository that a page links to, as paths in the repository."""
    found = []
    for _, target, _ in LINK.findall(without_code(text)):
        file = target.partition("#")[0]
        if file and not re.match(r"[a-z]+:", file):
            found.append(posixpath.normpath(posixpath.join(posixpath.dirname(path), file)))
    return found


def without_code(text: str) -> str:
    """A page without its fenced blocks."""
    return "\n".join(line for line, code in lines_of(text) if not code)


def lines_of(text: str) -> list[tuple[str, bool]]:
    """The lines of a page, each with whether it belongs to a fenced block."""
    found, inside = [], False
    for line in text.split("\n"):
        fence = line.startswith("```")
        found.append((line, inside or fence))
        inside ^= fence
    return found


# --- navigation ---------------------------------------------------------------------------------------------------


def navigation(index: str) -> list[Any]:
    """The menu, from the second part of the index: `##` is a tab, `###` a section in it, `- [title](page)` a page.

    The reference also gets the generated pages.
    """
    tabs: list[Any] = [{"Home": "index.md"}]
    place: list[Any] = tabs
    for line in index.partition(MENU)[2].splitlines():
        item = ITEM.match(line)
        if line.startswith("## "):
            place = tab = []
            tabs.append({line[3:]: tab})
        elif line.startswith("### "):
            place = []
            tab.append({line[4:]: place})
        elif item:
            title, target = item.groups()
            place.append({title: site_uri(posixpath.normpath(posixpath.join("docs", target.partition("#")[0])))})
    for tab in tabs:
        if "Reference" in tab:
            modules = [{name: f"reference/{name}.md"} for name in public_modules()]
            tab["Reference"] += [{"Python": modules}, {"JSON Schemas": "reference/schemas.md"}]
    return tabs


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation."""
    if config.nav is None:
        config.nav = navigation((DOCS / "index.md").read_text(encoding="utf-8"))
    return config


# --- pages that are not in docs/ ----------------------------------------------------------------------------------


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:  # noqa: ARG001
    """The home page has no neighbors to show at its side."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - mkdocs
    """Take what searches from the disk from the disk, too."""
    if page.is_homepage:
        output = output.replace("<body ", '<body class="home" ', 1)
    return output.replace(REMOTE, get_relative_url("site/iframe-worker.js", page.file.url))


def on_post_build(config: MkDocsConfig) -> None:
    """Write what coding agents read: llms.txt, an index, and llms-full.txt, the guides in one file."""
    index = (DOCS / "index.md").read_text(encoding="utf-8").partition(MENU)[2]
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    whole: list[str] = []
    tab = ""
    for line in index.splitlines():
        item = ITEM.match(line)
        if line.startswith("## "):
            tab = line[3:]
            lines += ["", line, ""]
        elif item and not item[2].startswith("../"):
            lines.append(line.replace(f"({item[2]}", f"({item[2].removesuffix('.md')}.html"))
            whole += [(DOCS / item[2]).read_text(encoding="utf-8")] if tab in TOLD_WHOLE else []
    site = Path(config.site_dir)
    (site / "llms.txt").write_text("\n".join(lines).strip() + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of linked files, the reference and the schemas."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            files.append(File.generated(config, site_uri(path), content=page_of(path)))
        if path.endswith(".md"):
            for target in linked((ROOT / path).read_text(encoding="utf-8"), path):
                if target not in seen and not target.startswith("docs/") and (ROOT / target).exists():
                    seen.add(target)
                    waiting.append(target)
    for name in public_modules():
        files.append(File.generated(config, f"reference/{name}.md", content=module_page(name)))
    files.append(File.generated(config, "reference/schemas.md", content=schema_page()))
    return files


def page_of(path: str) -> str:
    """The page of one file or folder of the repository."""
    there = ROOT / path
    if path.endswith(".md"):
        return there.read_text(encoding="utf-8")
    if there.is_dir():
        inside = sorted(child for child in there.iterdir() if child.is_file())
        return "\n".join([f"{QUIET}# {path}\n", *(f"## {file.name}\n{fenced(file)}\n" for file in inside)])
    return f"{QUIET}# {path}\n\n{fenced(there, numbered=True)}\n"


def fenced(file: Path, *, numbered: bool = False) -> str:
    """A file as a block of code."""
    text = file.read_text(encoding="utf-8").rstrip()
    language = LANGUAGES.get(file.suffix, "text")
    return f"````{language}{' linenums=' + chr(34) + '1' + chr(34) if numbered else ''}\n{text}\n````"


def schema_page() -> str:
    """The JSON Schemas of what is written and sent, made by the code itself."""
    sys.path.insert(0, str(ROOT / "src"))
    wire = importlib.import_module("glidepath._wire")
    parts = [f"{LOW}# JSON Schemas\n\nOf what is written and sent: made by the code when this site is built.\n"]
    for title, where in SCHEMAS.items():
        module, _, name = where.partition(":")
        thing = getattr(importlib.import_module(module), name)
        kind = Union[tuple(thing)] if name == "EVENTS" else thing  # noqa: UP007 - of as many as there are
        made = thing() if name == "json_schema" else wire.schema(kind)
        body = json.dumps(made, indent=2, default=str)
        parts.append(f"## {title}\n`{where.replace(':', '.')}`\n\n```json\n{body}\n```\n")
    return "\n".join(parts)


# --- what a page says on the site ---------------------------------------------------------------------------------


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs
    """Translate what repository hosts and mkdocs read differently."""
    uri = page.file.src_uri
    if not uri.startswith("reference/"):
        page.meta.setdefault("search", {"boost": 0.3 if uri.startswith(INNER) else 2})
    if uri.startswith("reference/"):
        return markdown
    path = repository_path(uri)
    done, before = [], ""
    for line, code in lines_of(markdown.partition(MENU)[0] if uri == "index.md" else markdown):
        if code:
            fence = FENCE.match(line)
            text = fence_line(fence[2].strip()) if fence and fence[2] else line
        else:
            text = LINK.sub(lambda match: moved(match, path, uri), line)
            starts = LISTED.match(line) and not LISTED.match(before) and not before.startswith(" ")
            if before.strip() and (starts or (line.startswith("|") and not before.startswith("|"))):
                done.append("")  # python-markdown wants an empty line where others do not
        done.append(text)
        before = line
    text = with_tabs("\n".join(done))
    return with_lines(text, uri) if uri == "guarantees.md" else text


def fence_line(info: str) -> str:
    """The opening line of a block: `python no-run` and `text output` are words of ours."""
    language, _, rest = info.partition(" ")
    if rest == "output":
        return "``` { .text .output }"
    return f"```{language} {rest}" if "=" in rest else f"```{language}"


def moved(match: re.Match[str], path: str, uri: str) -> str:
    """A link whose target stands elsewhere on the site than in the repository."""
    before, target, after = match.groups()
    file, _, anchor = target.partition("#")
    if not file or re.match(r"[a-z]+:", file):
        return match[0]
    there = site_uri(posixpath.normpath(posixpath.join(posixpath.dirname(path), file)))
    relative = posixpath.relpath(there, posixpath.dirname(uri) or ".")
    return f"{before}{relative}{'#' + anchor if anchor else ''}{after}"


def with_lines(text: str, uri: str) -> str:
    """Every test of the guarantees page with a link to its line."""
    where: dict[str, str] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            found = re.match(r"\s*(?:async )?def (test_g\d+_\w+)", line)
            if found:
                page = posixpath.relpath(site_uri(file.relative_to(ROOT).as_posix()), os.path.dirname(uri) or ".")  # noqa: PTH120
                where.setdefault(found[1], f"{page}#__codelineno-0-{number}")
    return TEST.sub(lambda match: f"[{match[0]}]({where[match[1]]})" if match[1] in where else match[0], text)
