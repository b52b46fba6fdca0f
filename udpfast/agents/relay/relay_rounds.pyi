from udpfast.agents.relay.relay_conflation import RelayConflation

__all__ = ["RelayRounds"]

class RelayRounds(RelayConflation): ...
