"""The caller of a door: its name, what it may do, and whose runs it reaches."""

from __future__ import annotations

from glidepath._wire import Value
from glidepath.apps.server.locks.keys import AccessKey
from glidepath.apps.server.locks.roles import RIGHTS, is_allowed
from glidepath.apps.server.refusals import HttpError

__all__ = ["OPERATOR", "RESERVED", "Visitor"]

RESERVED = ("key:", "tenant:")
"""How the tags begin that say whose a session is. Only the server and the operator write them."""


class Visitor(Value, frozen=True):
    """The caller: the name of its token or key, its role, and the tenant it is bound to."""

    name: str
    role: str
    tenant: str | None = None
    key: AccessKey | None = None
    """Its key, with budget, rate, agents and models; None for a token of the server itself."""

    @property
    def scope(self) -> str | None:
        """The tag of the sessions that this caller reaches; None reaches all of them."""
        if self.role == "run":
            return f"key:{self.name}"
        return None if self.tenant is None else f"tenant:{self.tenant}"

    @property
    def marks(self) -> tuple[str, ...]:
        """The tags of the sessions that this caller starts: whose they are."""
        if self.scope is None and self.key is None:
            return ()
        return (f"key:{self.name}", *([] if self.tenant is None else [f"tenant:{self.tenant}"]))

    def may(self, right: str) -> bool:
        """True when it has this right."""
        return is_allowed(self.role, right, tenant=self.tenant)

    def must(self, *rights: str) -> None:
        """Raise `HttpError` unless it has one of these rights."""
        if any(self.may(right) for right in rights):
            return
        does = " or ".join(RIGHTS[right].does for right in rights)
        who = sorted({role for right in rights for role in RIGHTS[right].roles})
        if self.role in who:
            raise HttpError(403, "not_allowed", f"{self.name} is bound to tenant {self.tenant} and cannot {does}")
        code, what = ("view_only", "read-only") if self.role == "view" else ("not_allowed", f"for the role {self.role}")
        raise HttpError(403, code, f"this token is {what}: it cannot {does}; use one with the role {' or '.join(who)}")


OPERATOR = Visitor("operator", "control")
"""The person who started the server: what the server does by itself is done in this name."""
