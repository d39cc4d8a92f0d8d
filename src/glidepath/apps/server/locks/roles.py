"""What each role may do: one table, which every door obeys and the documentation shows."""

from __future__ import annotations

from glidepath._wire import Value

__all__ = ["RIGHTS", "ROLES", "Right", "is_allowed"]

ROLES = ("view", "run", "approve", "control")


class Right(Value, frozen=True, kw_only=True):
    """Something a caller may do, and the roles that may do it.

    `whole` is for what concerns everybody on the server: a key that is bound to a tenant cannot have it.
    """

    does: str
    roles: tuple[str, ...]
    whole: bool = False


RIGHTS: dict[str, Right] = {
    "look": Right(does="list runs and read them: cards, events, transcripts, journals", roles=ROLES),
    "start": Right(does="start runs and continue sessions", roles=("run", "control")),
    "stop": Right(does="land or stop a run", roles=("run", "control")),
    "decide": Right(does="approve, deny, edit or answer a call that waits", roles=("approve", "control")),
    "steer": Right(does="steer, resume, fork and settle runs, and raise their limits", roles=("control",)),
    "watch": Right(
        does="read what concerns everybody: the fleet, all budgets, metrics",
        roles=("view", "approve", "control"),
        whole=True,
    ),
    "kill": Right(does="throw and release kill switches", roles=("control",), whole=True),
}
"""The table. `run` reaches the runs that its own key started; the other roles reach their tenant's, or all of them."""


def is_allowed(role: str, right: str, *, tenant: str | None = None) -> bool:
    """True when this role has this right; unknown roles and rights have none."""
    known = RIGHTS.get(right)
    return known is not None and role in known.roles and not (known.whole and tenant is not None)
