"""The agents that may run beside a feed: one table, one line each.

Such an agent is a reader of the ring, or of the feed's store, like any strategy; or it asks a
server for what the feed lacks (shm/answers). It runs where its table of the feed's file says
`enabled = true`, or names a server, on a thread of its own or in a process of its own
(`run.processes`), and is started again when it ends with an error. What the feed does never depends
on it.

To add one: a `Struct` derived from `config.CompanionConfig` as a table of `FeedConfig`, a module in
this folder with `build(config, directory) -> Agent`, and a line in `AGENTS`. Of the agent it is
expected that

- `on_start` opens what it needs, `on_stop` closes it, and a failure in between raises;
- `do_work` never blocks for longer than some milliseconds: `stop` is seen between two turns;
- it returns `AGENT_DONE` when the writer closed the ring, or a store's feed ended, and all was
  read: that is how it drains. Who asks a server has nothing to read then;
- it can be built again after any end, its own process's included;
- where its start can fail for what its settings name, `try_start(config)` of its module opens that
  for a moment: `udpfast check` shows what it raises, as the start would;
- where it keeps records, `count_missing(config, directory) -> int` of its module says how many of
  the feed's it lacks.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from msgspec import Struct

from udpfast.config import (
    CompanionConfig,
    FeedConfig,
    RetransmissionConfig,
    SnapshotServerConfig,
)
from udpfast.core.agent import Agent

__all__ = ["AGENTS", "AgentFactory", "wanted_agents", "wanted_cores"]


class AgentFactory(Struct, frozen=True):
    """How one kind of agent is built.

    Attributes
    ----------
    name : str
        Of its table in the feed's file; what tools call it.
    module : str
        Has `build(config, directory) -> Agent`; imported when it is wanted, not before.
    apart : bool
        It has a process of its own whatever `run.processes` says.
    """

    name: str
    module: str
    apart: bool = False

    def settings(
        self, config: FeedConfig
    ) -> CompanionConfig | RetransmissionConfig | SnapshotServerConfig:
        """Return the agent's table; the defaults if it has none of its own."""
        return getattr(config, self.name, None) or CompanionConfig()

    def build(self, config: FeedConfig, directory: Path) -> Agent:
        """Return a new agent for the instance in `directory`."""
        agent = import_module(self.module).build(config, directory)
        assert isinstance(agent, Agent)
        return agent

    def try_start(self, config: FeedConfig) -> bool:
        """Open for a moment what its start opens by its settings; whether there is such.

        Raises
        ------
        ConfigError, OSError
            What its start would.
        """
        attempt = getattr(import_module(self.module), "try_start", None)
        if attempt is not None:
            attempt(config)
        return attempt is not None

    def missing(self, config: FeedConfig, directory: Path) -> int:
        """Return how many of the feed's records it has missed for good, over all its runs."""
        count = getattr(import_module(self.module), "count_missing", None)
        return 0 if count is None else count(config, directory)


#: Every agent that `udpfast run` and `Subscriber` may start beside the feed.
AGENTS: tuple[AgentFactory, ...] = (
    AgentFactory("image", "udpfast.agents.feed.image_keeper"),
    AgentFactory("zmq", "udpfast.agents.zmq.zmq_fanout"),
    AgentFactory("retransmission", "udpfast.agents.recovery.retransmission"),
    AgentFactory("snapshot_server", "udpfast.agents.recovery.snapshot_server"),
    # Where the kernel writes its pages to the disk, it interrupts every processor that runs a
    # thread of the same process: the feed's, a few microseconds each time.
    AgentFactory("record", "udpfast.agents.feed.recorder", apart=True),
    # It sends while the feed receives; what it does in Python shall not hold the feed's process.
    AgentFactory("relay", "udpfast.agents.relay.relay", apart=True),
)


def wanted_agents(config: FeedConfig) -> list[AgentFactory]:
    """Return the agents that a feed's file asks for, in the order of the table."""
    return [factory for factory in AGENTS if factory.settings(config).enabled]


def wanted_cores(config: FeedConfig) -> dict[str, int | None]:
    """Return the core of the feed's loop and of each agent beside it, by key; None: not pinned."""
    agents = {f"{each.name}.core": each.settings(config).core for each in wanted_agents(config)}
    return {"agent.core": config.agent.core} | agents
