"""Simple Binary Encoding: `udpfast.sbe.Schema("orders.xml")`.

schema = udpfast.sbe.Schema("orders.xml")
payload = schema.encode("NewOrder", {"price": 17560, "side": "Buy", "fills": []})
values = schema.decode(payload)
table = schema.table(batch, "NewOrder.fills")
"""

from udpfast.payload.sbe.document import SchemaError
from udpfast.payload.sbe.rows import Rows
from udpfast.payload.sbe.schema import FRAMINGS, Message, Schema

__all__ = ["FRAMINGS", "Message", "Rows", "Schema", "SchemaError"]
