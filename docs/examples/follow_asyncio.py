"""Follow an instance in an event loop, beside other tasks, without a thread or busy waiting.

python docs/examples/follow_asyncio.py ring:NAME
"""

import asyncio
import sys

import udpfast


async def follow(address: str) -> None:
    """Print every quote."""
    with udpfast.Reader(address, start="oldest", kinds=udpfast.Kind.TOP_OF_BOOK) as reader:
        async for record in reader:
            if record.kind is udpfast.Kind.TOP_OF_BOOK:  # doubts come too
                quote = record.data
                print(record.symbol, quote["bid_price"], quote["ask_price"], flush=True)


async def main(address: str) -> None:
    """Follow the instance while another task runs."""
    other = asyncio.create_task(asyncio.sleep(3600))
    await follow(address)
    other.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
