"""Sessions of a composite's copy. Each encodes an input and a session of that input.

`copied_sessions.pxd` makes them.
"""

__all__ = ["copied_input", "copied_session"]

#: Most inputs of a composite in bus.toml.
INPUTS_MAX = 16


def copied_input(session: int) -> int | None:
    """Return the index of the input of a copy's session, from 0; None: it has none."""
    return (session - 1) % INPUTS_MAX if session else None


def copied_session(session: int) -> int:
    """Return the session within its input of a copy's session; 0: none, as for apps' messages."""
    return (session - 1) // INPUTS_MAX if session else 0
