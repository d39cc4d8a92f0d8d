"""Check that docs, help texts, error texts, docstrings and comments read like plain English. `make lint` runs it.

python scripts/check_words.py              # every hit as file:line, exit code 1 if there is one
python scripts/check_words.py docs/x.md    # only these files

GIVEAWAYS are phrases that sounded translated in this project, each with what to write instead. SPELLING is American
except for one word: `cancelled` has two l's, as in `asyncio.CancelledError` and `Task.cancelled()`.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = r"(?:many|much|long|often|few)"
IDIOMS = r"longer|more|such|less|use|way|different|problem|one|(?:small|larg|short|great|high|low|bett|old|new)er"
PLACES = r"in(?! for| the way|[.:]| and)|at|on|here|there|before|after|where|behind|under|below|above|elsewhere"
ISED = r"ialis|gnis|mmaris|rganis|inimis|aximis|ptimis|ndardis|ustomis|hronis|uthoris|enalis|egoris"
GIVEAWAYS = {  # a regular expression: what to write instead
    r"(?<!there )(?:is|are|was|were) (?-i:none)(?! of\b)": "say what it is: malformed, missing, not a ...",
    r"(?:what|that|which|who) (?:is|are|was|were) no(?! longer| more| other| \w+er than)": "that is not a ...",
    rf"(?<!there )(?<!here )(?:is|are|was|were) no(?! (?:{IDIOMS})\b|\.)": "is not a ...",
    r"(?<!what )(?<!what has )(?<!that )(?:is|are|was|were|be|been) said": "is reported, is shown, the error says",
    r"(?:go|goes|going|went|gone) on(?! (?:the|top|a|its|stderr|stdout|disk|record)\b)": "continue, resume, run",
    r"carr(?:y|ies|ied|ying) on": "continue",
    r"(?:nobody|somebody|anybody|another)'s": "name the owner",
    r"(?:no|some|any|every)body (?:has|have) to": "use the active voice",
    r"whoever": "anyone who, the caller, the process that",
    r"anew": "again, re-",
    r"thereby|thereof|thereupon|therein|hereby|wherein|whereupon|whereby": "by that, then",
    r"for who": "for those who",
    r"belongs? into": "belongs in",
    r"(?:is|are|was|were|be) taken for(?! too|`| \{)|(?:take|takes|took) (?:it|them) for": "is treated as, is presumed",
    r"else than|but what|nothing but what": "other than, only what",
    rf"(?:at most|at least|of|for|after|before|within|by|up to|with|than) so {NUMBERS}(?! as| that)": "this many",
    r"(?<!only )so many (?:bytes|tokens|seconds|turns|runs|calls|times|characters|lines|rows)(?! that\b)": "this many",
    r"(?:get|gets|got) to know": "learn, see",
    r"(?:has|have|had) to say(?! (?:so|no|yes)\b)": "report, answer",
    r"(?:be|is|was) the matter": "be wrong",
    r"in vain": "without success",
    r"fly|flies|flew|flown|flying": "run",
    r"an? [\w-]+ of (?:its|their|his|your|one's|my|our) own": "its own ...",
    r"the truth about|says? the truth": "honestly how, is true",
    rf"stands? (?:{PLACES})": "is",
    r"(?:how|where|what) (?:it|they|this|that|things|an?|the|one) ?\w* stands?(?! for)": "its state",
    r"lies? (?:here|there)": "is",
    r"merely": "only",
    r"of a type": "typed",
    r"moving here|past one machine|house tour|asked often|talking on": "migrating, scaling out, architecture, FAQ",
    r"words? too many": "unexpected argument",
    r"what (?:waits|flies|stands(?! in the way))": "waiting, running",
    r"in flight already": "already running",
    r"what (?:becomes?|became|comes?|came) of": "what happens to, the result of",
    r"(?:has|have|had) a say": "affects, is involved in",
    r"(?:can|could|cannot|to) be had": "is available, works",
    r"all the same": "anyway, still",
    r"stays? as (?:it is|they are)": "does not change",
    r"as (?:its|their) users would": "as a user would",
    r"whatever (?:the|their|its) case": "ignoring case",
    r"derive from this": "subclass this",
    r"(?:is|are) there to (?:hide|refuse|deny|stop)": "must hide, must refuse",
    r"(?:by )?whomever|in so many words": "by anyone; say it directly",
    r"goes with (?:the|its) (?:status|result)|comes? to an end": "matches, ends",
    r"as (?:it|they) came": "unchanged",
    r"of one's own": "your own, its own",
    r"taken in from": "imported from",
}
SPELLING = {
    r"canceled|canceling|cancelation": "two l's, as in asyncio",
    r"\w*(?:behaviour|colour|favour|honour|neighbour|labour|rumour)\w*": "American: -or",
    r"centre\w*|metre|litre|theatre|fibre": "American: -er",
    r"licence\w*|defence|offence|pretence": "American: -se",
    rf"\w+(?:{ISED})(?:e|es|ed|ing|ation|er)": "American: -ize",
    r"analysed?|catalogues?|artefacts?|judgement|grey|whilst|amongst|towards|learnt": "American spelling",
    r"spelt|misspelt|journall(?:ed|ing)": "American spelling",
    r"for ever": "forever",
    r"modell(?:ed|ing)|labell(?:ed|ing)|signall(?:ed|ing)|travell(?:ed|ing)|fulfil|enrol": "American spelling",
}
WORDS = {**GIVEAWAYS, **SPELLING}
HITS = {rf"(?<![\w`/.-])(?:{pattern})(?![\w-])": hint for pattern, hint in WORDS.items()}
HINTS = tuple(SPELLING.values())
QUICK = re.compile("|".join(f"(?:{pattern})" for pattern in WORDS), re.IGNORECASE)
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
    "bench/page.md",
    "bench/crash/*.md",
    "docs/**/*.md",
)
CODE = ("src/**/*.py", "examples/**/*.py", "bench/crash/*.py")
SPELLED = ("CHANGELOG.md", "scripts/*.py", "deploy/**/*")  # only their spelling is checked
GENERATED = {
    "docs/history/development.md",
    "docs/contracts.md",
    "docs/mcp-conformance.md",
    "docs/benchmarks-peers.md",
    "docs/crash-test.md",
}  # checked at their source
BEGIN, END = re.compile(r"<!-- (?:begin: |proofs|probes|crash test)"), re.compile(r"<!-- end")
FENCE = re.compile(r"^\s*```")
TABLE = re.compile(r"^\| `")
SQL = re.compile(r"\b(?:SELECT|CREATE|INSERT INTO|UPDATE|DELETE FROM) ")
INLINE = re.compile(r"`[^`]*`|\]\([^)]*\)|\"[^\"]*\"")
DIRECTIVE = re.compile(r"(?:noqa|type: ignore|pragma|fmt|pyright|nosec)\b[^#-]*(?:- |# )?")
Text = tuple[int, str]


def page_texts(path: Path) -> Iterator[Text]:
    """The prose of a page, paragraph by paragraph: no code, no link targets, nothing that is quoted or generated."""
    inside = skipped = False
    first, lines = 0, []
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        fence = FENCE.match(line) is not None
        inside ^= fence
        skipped = (skipped or BEGIN.match(line) is not None) and not END.match(line)
        generated = path.name == "configuration.md" and TABLE.match(line) is not None
        if inside or fence or skipped or generated or not line.strip() or line.startswith(("|", "-", "#")):
            if lines:
                yield first, INLINE.sub("`x`", " ".join(lines))
            lines = []
        if not (inside or fence or skipped or generated) and line.strip():
            first = first if lines else number
            lines.append(line)


def code_texts(path: Path) -> Iterator[Text]:
    """Every docstring and every other text in a program; SQL is code."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, INLINE.sub("`x`", " ".join("".join(map(str, parts)).split()))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value.strip()
            and not SQL.search(node.value)
        ):
            yield node.lineno, INLINE.sub("`x`", " ".join(node.value.split()))
    yield from comments(path)


def comments(path: Path) -> Iterator[Text]:
    """Every comment of a program; those on successive lines are one text. What tools read (`# noqa`) is left out."""
    first, last, lines = 0, 0, []  # `last` is the line that the next one may continue
    with path.open("rb") as file:
        found = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    for token in found:
        number, alone = token.start[0], not token.line[: token.start[1]].strip()
        if lines and (not alone or number != last + 1):
            yield first, INLINE.sub("`x`", " ".join(lines))
            lines = []
        first, last = (first if lines else number), (number if alone else 0)
        lines.append(DIRECTIVE.sub("", token.string.lstrip("#! ")))
    if lines:
        yield first, INLINE.sub("`x`", " ".join(lines))


def make_texts(path: Path) -> Iterator[Text]:
    """What `make help` prints."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield number, line.partition("## ")[2]


def remark_texts(path: Path) -> Iterator[Text]:
    """The comments of a file for a machine: a unit, a manifest, a Dockerfile."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield number, line.partition("# ")[2]


def files() -> list[Path]:
    """Everything that is checked."""
    found = [path for pattern in (*PAGES, *CODE) for path in sorted(ROOT.glob(pattern))]
    return [*(path for path in found if path.relative_to(ROOT).as_posix() not in GENERATED), ROOT / "Makefile"]


def spelled() -> list[Path]:
    """Everything of which only the spelling is checked; this file lists what it looks for."""
    found = [path for pattern in SPELLED for path in sorted(ROOT.glob(pattern))]
    return [path for path in found if path.is_file() and path != Path(__file__).resolve()]


def hits(text: str) -> Iterator[tuple[str, str]]:
    """What gives a text away, and what to write instead."""
    if not QUICK.search(text):
        return
    for pattern, hint in HITS.items():
        for found in re.finditer(pattern, text, re.IGNORECASE):
            context = text[max(0, found.start() - 60) : found.end() + 50]
            yield f"...{context}...", f"{found[0]!r}: {hint}"


def texts(path: Path) -> Iterator[Text]:
    """The texts of a file with their lines."""
    readers = {".py": code_texts, ".md": page_texts, "": make_texts if path.name == "Makefile" else remark_texts}
    return readers.get(path.suffix, remark_texts)(path)


def main(names: list[str]) -> int:
    """Print every hit."""
    light = spelled()
    chosen = [Path(name).resolve() for name in names] or [*files(), *light]
    count = 0
    for path in chosen:
        seen: set[tuple[int, str]] = set()
        for line, text in texts(path):
            for context, why in hits(text):
                if (line, why) not in seen and (path not in light or why.endswith(HINTS)):
                    seen.add((line, why))
                    count += 1
                    print(f"{path.relative_to(ROOT)}:{line}: {why}\n    {ascii(context)[1:-1]}")
    print(f"{count} giveaways" if count else "the words are fine")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
