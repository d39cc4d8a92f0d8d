"""What a rule covers, and what it touches: commands by their words, files by their paths."""

import pytest

from glidepath import ConfigurationError, Rules, tool
from glidepath.guards.approvals import decide, read_rules
from glidepath.workspace import Workspace, workspace_tools


def allows(rule, command):
    ruling = decide(read_rules(Rules(allow=[rule])), "shell", None, {"command": command}, "command")
    return ruling is not None and ruling.verdict == "allow"


def denies(rule, command):
    ruling = decide(read_rules(Rules(deny=[rule])), "shell", None, {"command": command}, "command")
    return None if ruling is None else ruling.verdict


@pytest.mark.parametrize(
    ("rule", "command", "is_allowed"),
    [
        ("shell(npm test *)", "npm test", True),
        ("shell(npm test *)", "npm test unit 'two words'", True),
        ("shell(npm test *)", "npm  test\tunit", False),
        ("shell(npm test)", "npm test unit", False),
        ("shell(npm test *)", "npm run test", False),
        ("shell(npm test *)", "npm test --silent", False),
        ("shell(npm test * --silent)", "npm test --silent", True),
        ("shell(npm test * --silent)", "npm test unit --silent", True),
        ("shell(npm test * --silent)", "npm test unit", False),
        ("shell(npm test * --silent)", "npm test --silent unit", False),
        ("shell(npm test --silent *)", "npm test --silent unit more", True),
        ("shell(npm test * --reporter=*)", "npm test unit --reporter=dot", True),
        ("shell(npm test * --reporter=*)", "npm test unit --reporter ./evil.js", False),
        ("shell(npm test * --reporter=*)", "npm test --script-shell=./evil", False),
        ("shell(git log * -n 5)", "git log -n 5 src", True),
        ("shell(git log * -n 5)", "git log -n 9 src", False),
        ("shell(git push --dry-run)", "git push", False),
        ("shell(git push --dry-run)", "git push --dry-run", True),
        ("shell(cat docs/*.md)", "cat docs/a.md", True),
        ("shell(cat docs/*.md)", "cat docs/deep/a.md", False),
        ("shell(cat docs/*)", "cat docs/../secret", False),
        ("shell(cat *)", "CAT x", False),
        ("shell(cat *)", "/bin/cat x", False),
        ("shell(cat *)", "./cat x", False),
        ("shell(cat *)", "X=1 cat x", False),
        ("shell(cat *)", "-x cat", False),
    ],
)
def test_a_rule_covers_a_program_its_words_and_the_options_it_names(rule, command, is_allowed):
    assert allows(rule, command) is is_allowed


REMOVAL = [
    "npm test; rm -rf x", "npm test && rm -rf x", "npm test | rm -rf x", "npm test & rm -rf x", "npm test\nrm -rf x",
    "npm test $(rm -rf x)", "npm test `rm -rf x`", "npm test <(rm -rf x)", "npm test > x", "npm test\rrm -rf x",
    "npm test \\\nrm", "npm test --script-shell 'rm -rf x'", "npm test --prefix /evil", "npm test -- rm -rf x",
    "npm test -rf", "npm test #\nrm -rf x", "npm test ${IFS}rm", "npm test *", "npm test ~/x", "npm test {a,b}",
    "npm --prefix evil test", "npm -c 'rm -rf x' test", "npm exec rm", "NPM_CONFIG_SCRIPT_SHELL=rm npm test",
    "env npm test", "sudo npm test", "sh -c 'npm test'", "xargs npm test", "time npm test", "command npm test",
    "n\u0440m test", "npm test \u202erm", "npm test 'x", "npm test \u2028rm", "npm test\0rm", "npm test\x0brm",
    "npm\u00a0test", "! npm test", "if npm test", "exec npm test", ". npm test",
    "busybox rm npm test", "", " ", "'' rm",
]  # fmt: skip


@pytest.mark.parametrize("command", REMOVAL)
def test_no_removal_gets_past_a_rule_for_tests(command):
    assert not allows("shell(npm test *)", command)


@pytest.mark.parametrize(
    "command",
    ["rm -rf x", "rm", "/bin/rm x", "ls; rm x", "ls && rm x", "$(rm x)", "`rm x`", "sh -c 'rm x'", "env A=b rm x",
     "sudo rm x", "find . -exec rm {} +", "xargs rm", "r''m x", 'r"m" x', "r\\m x", "RM x",
     "ls\nrm x", "(rm x)", "{ rm x; }"],
)  # fmt: skip
def test_a_denied_program_is_found_wherever_it_shows(command):
    assert denies("shell(rm *)", command) == "deny"


@pytest.mark.parametrize("command", ["$X y", "ls | sh", "echo cm0gLXJm | base64 -d | sh", "python -c 'x'", "ls > y"])
def test_where_a_denied_program_could_hide_a_person_is_asked(command):
    assert denies("shell(rm *)", command) == "ask"


def test_a_plain_command_that_is_not_denied_is_nobodys_business():
    assert denies("shell(rm *)", "ls farm") is None
    assert denies("shell(git push *)", "git commit -m 'rm push-me'") is None


def test_deny_wins_over_ask_and_ask_over_allow():
    rules = Rules(allow=["shell(git push origin main)"], ask=["shell(git push *)"], deny=["shell(git push * --force)"])
    decided = [
        decide(read_rules(rules), "shell", None, {"command": command}, "command").verdict
        for command in ("git push origin main", "git push --force origin main")
    ]
    assert decided == ["ask", "deny"]


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("shell", "would allow every command"),
        ("*", "would allow every tool"),
        ("shell()", "nothing in its parentheses"),
        ("shell(*)", "must begin with the name of a program"),
        ("shell(./run *)", "without a path"),
        ("shell(A=b ls)", "name of a program"),
        ("shell(-x ls)", "name of a program"),
        ("shell(npm test; rm *)", "has ';'"),
        ("shell(npm test $X)", "has '$'"),
        ("shell(npm 'test)", "not a command"),
        ("shell(sh -c *)", "starts other programs"),
        ("shell(python3.12 *)", "starts other programs"),
        ("shell(npx *)", "starts other programs"),
        ("shell(make *)", "starts other programs"),
        ("shell(git -c * status)", "starts other programs"),
        ("shell(npm install *)", "write each command in full"),
        ("shell(npm test -*)", "name each option"),
        ("read(/etc/*)", "below the workspace"),
        ("read(../x)", "below the workspace"),
        ("two words", "must be a rule"),
        ("shell(npm test", "must be a rule"),
        (7, "must be a rule"),
    ],
)
def test_a_rule_that_could_never_do_what_it_says_is_refused(rule, what):
    with pytest.raises(ConfigurationError, match=r"approvals\.allow\[0\]") as caught:
        Rules(allow=[rule])
    assert what in str(caught.value)


def test_a_list_is_a_list_and_no_rule_is_in_two_of_them():
    with pytest.raises(ConfigurationError, match=r"approvals\.allow must be a list of rules"):
        Rules(allow="shell(ls)")
    with pytest.raises(ConfigurationError, match=r"approvals\.allow: 'read' is in approvals\.deny, too"):
        Rules(allow=["read"], deny=["read"])
    with pytest.raises(ConfigurationError, match=r"approvals\.reviewer must be a model"):
        Rules(reviewer=7)


# --- files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path):
    for folder in ("src/deep", "secret", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src" / "out").symlink_to("../secret")
    return workspace_tools(Workspace(tmp_path), ["read", "write", "edit", "list", "shell"], sandbox="off")


def ruled(rules, tools, name, **arguments):
    found = next(one for one in tools if one.name == name)
    ruling = decide(read_rules(rules), name, found, arguments)
    return None if ruling is None else ruling.verdict


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/a.py", "allow"),
        ("./src/a.py", "allow"),
        ("src/deep/a.py", "allow"),
        ("src/a.txt", None),
        ("src/../secret/a.py", None),
        ("/etc/a.py", None),
        ("src/out/a.py", None),
        ("src/\u202ea.py", None),
        ("", None),
    ],
)
def test_a_rule_about_files_covers_what_lies_there_and_not_where_a_link_leads(tools, path, expected):
    assert ruled(Rules(allow=["write(src/**/*.py)"]), tools, "write", path=path, content="x") == expected


@pytest.mark.parametrize(
    "path", ["secret/a", "./secret/a", "src/out/a", "docs/../secret/a", "SECRET/a", "secret/deep/a", 7]
)
def test_a_denied_folder_is_denied_by_every_name_it_has(tools, path):
    assert ruled(Rules(deny=["write(secret/**)"]), tools, "write", path=path, content="x") == "deny"
    assert ruled(Rules(deny=["write(secret)"]), tools, "write", path=path, content="x") == "deny"


def test_other_files_are_not_denied(tools):
    assert ruled(Rules(deny=["write(secret/**)"]), tools, "write", path="docs/secret.md", content="x") is None


def test_a_tool_with_other_texts_beside_its_command_is_never_allowed_by_its_command():
    @tool(requires_approval=True)
    def remote(command: str, host: str) -> str:
        """Run something somewhere."""
        return command + host

    rules = Rules(allow=["remote(uptime)"], deny=["remote(rm *)"])
    assert decide(read_rules(rules), "remote", remote, {"command": "uptime", "host": "x"}).verdict == "deny"
    assert (
        decide(read_rules(Rules(allow=["remote"])), "remote", remote, {"command": "x", "host": "y"}).verdict == "allow"
    )
