"""Ways in which a word that looks like an argument is another program, or more options."""

import pytest

from glidepath import ConfigurationError, Rules
from glidepath.guards.approvals import decide, read_rules


def allows(rule, command):
    ruling = decide(read_rules(Rules(allow=[rule])), "shell", None, {"command": command}, "command")
    return ruling is not None and ruling.verdict == "allow"


@pytest.mark.parametrize(
    "rule",
    [
        "git *",
        "npm *",
        "npm i*",
        "yarn *",
        "pnpm * --silent",
        "cargo *",
        "uv *",
        "gh *",
        "go *",
        "git s* --short",
        "gh",
    ],
)
def test_a_rule_names_the_subcommand(rule):
    """Or it would allow `npm isntall x` and `npm rum x`, which npm takes, and every alias in a folder's .git/config."""
    if "*" not in rule:
        assert allows(f"shell({rule})", rule)
        return
    with pytest.raises(ConfigurationError, match=r"approvals\.allow\[0\].*name its subcommand"):
        Rules(allow=[f"shell({rule})"])


@pytest.mark.parametrize(
    "rule",
    ["npm init *", "npm create *", "yarn create *", "pnpm create *", "npm isntall *", "npm it *", "npm rum *",
     "pip wheel *", "pip download *", "uv pip *", "composer require *", "brew reinstall *", "git ls-remote *",
     "git hook *", "git remote-ext *", "go generate *", "pipenv run *", "pdm run *", "rye run *", "pixi exec *",
     "rbenv exec *", "aws-vault exec *", "op run *", "doppler run *", "rails runner *", "volta run *", "turbo run *",
     "flatpak run *", "heroku run *", "snap run *"],
)  # fmt: skip
def test_what_fetches_or_runs_its_words_needs_them_all(rule):
    with pytest.raises(ConfigurationError, match=r"write each command in full"):
        Rules(allow=[f"shell({rule})"])
    in_full = rule.replace("*", "this")
    assert allows(f"shell({in_full})", in_full)
    assert not allows(f"shell({in_full})", f"{in_full} that")


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("pipenv *", "pipenv run rm x"),
        ("pdm *", "pdm run rm x"),
        ("tool *", "tool exec rm x"),
        ("tool * --quiet", "tool --quiet x exec rm"),
        ("tool *", "tool shell rm"),
    ],
)
def test_a_subcommand_that_runs_its_words_is_not_covered_by_a_star(rule, command):
    assert not allows(f"shell({rule})", command)


@pytest.mark.parametrize(
    "program",
    ["cross-env", "dotenv", "concurrently", "caffeinate", "gosu", "su-exec", "tini", "singularity", "apptainer",
     "mpirun", "srun", "ipython", "ipython3", "xonsh", "nu", "rails", "cscript", "mshta", "psql",
     "duckdb", "torchrun", "chronic",
     "ld.so", "ldd", "runcon", "capsh", "dash", "pwsh", "Sh", "PYTHON3.12", "node22", "python3.12.exe"],
)  # fmt: skip
def test_a_wrapper_is_covered_by_no_rule(program):
    rule = f"{program} console *" if program == "rails" else f"{program} *"
    with pytest.raises(ConfigurationError, match=r"starts other programs|write each command in full"):
        Rules(allow=[f"shell({rule})"])


@pytest.mark.parametrize(
    ("rule", "command", "is_allowed"),
    [
        ("gcc *", "gcc a.c @options.txt", False),
        ("pytest *", "pytest @arguments", False),
        ("pytest tests/*", "pytest @tests/a", False),
        ("pytest *", "pytest tests/test_a.py", True),
        ("pytest @tests/*", "pytest @tests/a", True),
        ("npm view @types/*", "npm view @types/node", True),
        ("git diff *", "git diff @", True),
        ("git diff *", "git diff @ main", True),
    ],
)
def test_a_file_of_more_options_is_covered_only_where_the_rule_shows_one(rule, command, is_allowed):
    assert allows(f"shell({rule})", command) is is_allowed


@pytest.mark.parametrize(
    "command",
    ["npm test \x1b[2K", "npm test \x08x", "npm\u2003test", "npm test \u200bx", "npm test \ufeff", "npm test \u0085rm",
     "npm test =(rm)", "npm test >|x", "npm test 2>x", "npm test <x", 'npm test "$(rm)"', "npm test '$X' \"`rm`\"",
     "npm test $'rm'", "npm test x\\", "npm test -", "npm test --", "npm test -x", "npm test '-x'", 'npm test "--x=1"',
     "npm 'test' '--prefix' y", "npm test\t--x", "(npm test)", "{ npm test; }", "npm test ||rm", "npm test |& rm",
     "npm test;", "coproc npm test", "function npm test", "time -p npm test", "npm test @rsp", "npm.cmd test",
     "\nnpm test",
     "npm test\n", "npm test %PATH%\n", "npm test !!", "npm test ^x^y\n", "npm test \ud800"],
)  # fmt: skip
def test_nothing_of_a_shells_gets_past_a_rule_for_tests(command):
    assert not allows("shell(npm test *)", command)


@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("turbo --no-daemon run build", False),
        ("turbo run --no-daemon build", False),
        ("turbo --no-daemon value run build", False),  # the word behind the option may be its value
        ("turbo --no-daemon lint", True),
        ("turbo lint --no-daemon web run", True),
    ],
)
def test_options_before_the_subcommand_hide_nothing(command, is_allowed):
    assert allows("shell(turbo --no-daemon *)", command) is is_allowed
