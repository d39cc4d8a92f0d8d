"""The locks of every door: who comes in, what a role may do, which keys there are and what they may spend.

`Doorkeeper.admit` decides from the head of a request who calls. `RIGHTS` is the table of roles. `keys_for` finds the
keys of a store, `make_key` makes one. `Allowance` checks agents, models and rate before a run and gives the wallet
of a key. Nothing in this package knows a route.
"""

from __future__ import annotations

from glidepath.apps.server.locks.addresses import check_bind, check_origins, is_loopback, parse_hosts
from glidepath.apps.server.locks.admission import Admitted, Doorkeeper, check_tokens
from glidepath.apps.server.locks.allowance import Allowance, wallet_of_key
from glidepath.apps.server.locks.codes import OneTimeCodes
from glidepath.apps.server.locks.kept_keys import keys_for
from glidepath.apps.server.locks.keys import AccessKey, KeyRing, MemoryKeys, make_key
from glidepath.apps.server.locks.roles import RIGHTS, ROLES, Right, is_allowed
from glidepath.apps.server.locks.visitor import OPERATOR, RESERVED, Visitor

__all__ = [
    "OPERATOR",
    "RESERVED",
    "RIGHTS",
    "ROLES",
    "AccessKey",
    "Admitted",
    "Allowance",
    "Doorkeeper",
    "KeyRing",
    "MemoryKeys",
    "OneTimeCodes",
    "Right",
    "Visitor",
    "check_bind",
    "check_origins",
    "check_tokens",
    "is_allowed",
    "is_loopback",
    "keys_for",
    "make_key",
    "parse_hosts",
    "wallet_of_key",
]
