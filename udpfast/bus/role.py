"""The role of a host in its store, and how events change it."""

from __future__ import annotations

from enum import Enum

__all__ = ["AFTER", "Event", "Role"]


class Role(Enum):
    """The role of a node, which determines what it does.

    | role | asks others | copies from another host | takes messages |
    |---|---|---|---|
    | BEGINNING | who has the store | yes: that ends this role | no |
    | RETURNING | who wrote since, who has more | no | no |
    | PROMOTING | who has more; to fence all others | what it lacks | as before |
    | SEQUENCING | who does not follow it, at times | no | yes |
    | FED | nobody | no: a feed writes the store here | no |
    | FOLLOWING | nobody | yes, unless it has stopped | no |
    """

    BEGINNING = "beginning"
    RETURNING = "returning"
    PROMOTING = "promoting"
    SEQUENCING = "sequencing"
    FED = "fed"
    FOLLOWING = "following"


class Event(Enum):
    """What changes a node's role. A promotion that fails restores the role before it."""

    HAS_NOTHING = "it starts with nothing, and is named to begin the store"
    WROTE_BEFORE = "it starts with a store that it wrote, and lost nothing of it"
    FEED_WRITES = "a feed on this host writes the store from now on"
    WRITES = "this host writes the store from now on"
    OTHER_WRITES = "another host writes the store"
    ASKING_ENDED = "it has asked the others, and does not write, or not yet"
    PROMOTED = "an operator wants this host to write the store"


_NOT_WRITING = {Event.OTHER_WRITES: Role.FOLLOWING, Event.ASKING_ENDED: Role.FOLLOWING}
_WRITES = {
    Event.WRITES: Role.SEQUENCING,
    Event.FEED_WRITES: Role.FED,
    Event.PROMOTED: Role.PROMOTING,
}

#: Next role by role and event. A pair that is missing cannot occur.
AFTER: dict[Role, dict[Event, Role]] = {
    Role.FOLLOWING: {
        **_WRITES,
        **_NOT_WRITING,
        Event.HAS_NOTHING: Role.BEGINNING,
        Event.WROTE_BEFORE: Role.RETURNING,
    },
    Role.BEGINNING: {**_WRITES, **_NOT_WRITING},
    Role.RETURNING: {**_WRITES, **_NOT_WRITING},
    Role.SEQUENCING: {**_WRITES, Event.OTHER_WRITES: Role.FOLLOWING},
    Role.FED: {},
    # The role stays; only the role to restore if the promotion fails changes.
    Role.PROMOTING: {**_WRITES, Event.OTHER_WRITES: Role.PROMOTING},
}
