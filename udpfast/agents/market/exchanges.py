"""The simulated exchanges: what `udpfast send --venue` and `udpfast demo --venue` choose from."""

from udpfast.agents.market.cme_market import CmeMarket
from udpfast.agents.market.venue_market import ItchMarket, PitchMarket, VenueMarket

__all__ = ["VENUE_MARKETS"]

#: Markets by the name of the payload.
VENUE_MARKETS: dict[str, type[VenueMarket]] = {
    market.payload: market for market in (ItchMarket, PitchMarket, CmeMarket)
}
