"""Files that hold secrets: a person is asked before one is read, because what is read goes to the model's provider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from glidepath.values import ConfigurationError, ToolError
from glidepath.workspace.protected_names import fold_name

SECRET_FILES = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_*_sk", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc",
    ".pypirc", ".htpasswd", ".git-credentials", ".dockercfg", ".docker/config.json", ".aws/credentials", ".kube/config",
    ".ssh/*", ".gnupg/*", "credentials.json", "service-account*.json", "client_secret*.json", "secrets.toml",
    "secrets.json", "secrets.yaml", "secrets.yml", "*.tfstate", "*.tfvars",
)  # fmt: skip
"""Names that usually hold keys and passwords. A name with a slash is the end of a path."""
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults", ".pub")


class SecretFileError(ToolError):
    """A file that nobody reads before a person was asked."""


class SecretFiles:
    """Which files of a workspace hold secrets."""

    def __init__(self, patterns: Iterable[str] = SECRET_FILES) -> None:
        if isinstance(patterns, str | bytes):
            raise ConfigurationError(f"secrets: expected a list of names, got {patterns!r:.80}: put it in a list")
        self.patterns = tuple(patterns)
        for pattern in self.patterns:
            if not isinstance(pattern, str) or not pattern.strip("/"):
                raise ConfigurationError(f"secrets: {pattern!r:.80} is not the name of a file, such as '.env'")
        self._rows = [[fold_name(step) for step in pattern.strip("/").split("/")] for pattern in self.patterns]

    def has(self, steps: Sequence[str]) -> bool:
        """True for a path with this end, in any spelling that a file system takes for the same name."""
        names = [fold_name(step) for step in steps]
        if not names or names[-1].endswith(_EXAMPLES):
            return False
        return any(
            len(row) <= len(names)
            and all(fnmatchcase(name, part) for name, part in zip(names[-len(row) :], row, strict=True))
            for row in self._rows
        )
