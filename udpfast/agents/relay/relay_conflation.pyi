from udpfast.agents.relay.relay_output import RelayOutput

__all__ = ["RelayConflation"]

class RelayConflation(RelayOutput): ...
