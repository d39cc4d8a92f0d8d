"""How far an address reaches: the one rule for whatever calls an address that somebody else has named."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_WRAPPING = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""IPv6 addresses that end in an IPv4 one: compatible, mapped, translated (SIIT, NAT64)."""
_OWN_NETWORK = tuple(map(ipaddress.IPv6Network, ("64:ff9b:1::/48", "fec0::/10")))
"""IPv6 addresses of a private network that not every version of Python knows as such."""


def read_address(text: str) -> Address:
    """The address that is really called: the IPv4 one to which what goes to this IPv6 one is sent.

    Raises ValueError for what is not an address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.sixtofour is not None:
        return address.sixtofour
    is_wrapped = int(address) > 1 and any(address in network for network in _WRAPPING)  # not :: and ::1
    return ipaddress.IPv4Address(address.packed[12:]) if is_wrapped else address


def is_public(address: Address) -> bool:
    """True for an address that is somebody else's, wherever this machine stands."""
    return address.is_global and not address.is_multicast and not any(address in network for network in _OWN_NETWORK)
