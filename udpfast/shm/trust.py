"""Whose files this process trusts: its own user's, root's, and those of `$UDPFAST_TRUST`.

Whoever can write a region can feed prices to a strategy, and kill it by truncating the file. So a
strategy that runs as another user than the feed must name the users it trusts:
`UDPFAST_TRUST=udpfast`.
"""

from __future__ import annotations

import grp
import os
import pwd

from udpfast.errors import ConfigError

__all__ = ["describe_owners", "find_group", "trusted_owners"]


def trusted_owners() -> set[int]:
    """Return the numbers of the users whose regions may be attached.

    Raises
    ------
    ConfigError
        `$UDPFAST_TRUST` names a user that does not exist.
    """
    owners = {os.geteuid(), 0}
    for name in os.environ.get("UDPFAST_TRUST", "").replace(",", " ").split():
        try:
            owners.add(
                int(name) if name.isdecimal() and len(name) < 11 else pwd.getpwnam(name).pw_uid
            )
        except KeyError:
            raise ConfigError(f"UDPFAST_TRUST: expected users, found {name!r}") from None
    return owners


def describe_owners() -> str:
    """Return the users that `trusted_owners` accepts, for error messages."""
    others = sorted(trusted_owners() - {os.geteuid(), 0})
    return f"expected owner {os.geteuid()} (or root" + "".join(f", {uid}" for uid in others) + ")"


def find_group(name: str) -> int:
    """Return the number of a group, given by name or number.

    Raises
    ------
    ConfigError
        There is no such group.
    """
    try:
        return int(name) if name.isdecimal() and len(name) < 11 else grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(f"access.group: expected a group, found {name!r}") from None
