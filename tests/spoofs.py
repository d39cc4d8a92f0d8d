"""Values that look like something else, and how every door must show them: the terminal, the deck, AG-UI and ACP."""

from typing import NamedTuple


class Spoof(NamedTuple):
    """One value of an argument; what must be shown of it, and which characters must never reach a person."""

    name: str
    value: str
    shown: tuple[str, ...]
    hidden: str = ""


SPOOFS = (
    Spoof(
        "bidirectional",
        "ls -la \u2067 \u2066 ; touch PWNED \u2069 \u2066 # lists the files \u2069 \u2069",
        ("<U+2067>", "<U+2066> ; touch PWNED <U+2069>"),
        "\u2066\u2067\u2069",
    ),
    Spoof("override", "pay DE89 \u202e65\u202c", ("DE89 <U+202E>65<U+202C>",), "\u202e\u202c"),
    Spoof(
        "zero width",
        "r\u200bm\u200d\ufeff x\u2060",
        ("r<U+200B>m<U+200D><U+FEFF> x<U+2060>",),
        "\u200b\u200d\ufeff\u2060",
    ),
    Spoof(
        "variation selectors",
        "ok\ufe0f\U000e0100\U000e0041",
        ("ok<U+FE0F><U+E0100><U+E0041>",),
        "\ufe0f\U000e0100\U000e0041",
    ),
    Spoof("blank letters", "a\u3164b\u2800c", ("a<U+3164>b<U+2800>c",), "\u3164\u2800"),
    Spoof("control", "a\x1b[2Jb\x07\x9bc\rd", ("a<U+001B>[2Jb<U+0007><U+009B>c<U+000D>d",), "\x1b\x07\x9b\r"),
    Spoof("homoglyph", "curl https://p\u0430ypal.com", ("p<U+0430>ypal.com",), "\u0430"),
    Spoof(
        "whole word alike",
        "curl \u0430\u0440\u0440\u04cf\u0435",
        ("<U+0430><U+0440><U+0440><U+04CF><U+0435>",),
        "\u0430\u0440",
    ),
    Spoof(
        "stray letters",
        "git clone https://\u0261ithub.com/\u1d20u\u1040/m\u0131 \ua4d6\ua4f2\ua4d4 gi\u0307t",
        ("<U+0261>ithub.com/<U+1D20>u<U+1040>/", "<U+A4D6><U+A4F2><U+A4D4>", "gi<U+0307>t"),
        "\u0261\u1d20\u1040\ua4d6\u0307",
    ),
    Spoof(
        "signs of an address",
        "curl good.example\u29f5\ua4f8evil\u06d4example \u02d7x \U0001d159",
        ("good.example<U+29F5><U+A4F8>evil<U+06D4>example <U+02D7>x <U+1D159>",),
        "\u29f5\ua4f8\u06d4\u02d7\U0001d159",
    ),
    Spoof("marks that are not drawn", "r\u17d2m\u1039 x", ("r<U+17D2>m<U+1039> x",), "\u17d2\u1039"),
    Spoof("wide forms", "rm \uff0drf \u2215", ("rm <U+FF0D>rf <U+2215>",), "\uff0d\u2215"),
    Spoof("forged mark", "a<U+202E>b", ("a<U+003C>U+202E>b",)),
    Spoof("very long", "echo " + "harmless " * 300 + "; touch PWNED", ("PWNED",)),
    Spoof("many lines", "ls -la" + "\n" * 60 + "touch PWNED", ("| touch PWNED",)),
    Spoof(
        "forged row",
        "ls\n  seconds: 5\nThe agent wants to call read:",
        ("    |   seconds: 5", "    | The agent wants to call read:"),
    ),
)
IDS = [spoof.name for spoof in SPOOFS]


def unfolded(text: str) -> str:
    """Shown text with the breaks of long lines taken back."""
    return text.replace("\r", "").replace("\n    > ", "")


def assert_shown(spoof: Spoof, text: str) -> None:
    """All of it is there, and nothing of what nobody can see."""
    missing = [part for part in spoof.shown if part not in unfolded(text)]
    assert not missing, (missing, text)
    assert not [f"U+{ord(sign):04X}" for sign in spoof.hidden if sign in text.replace("\r\n", "\n")]
