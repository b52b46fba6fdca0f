"""Receive a feed and publish it to local strategies, until SIGINT, SIGTERM or SIGHUP.

python docs/examples/subscribe.py docs/examples/feed.toml
"""

import sys

import udpfast


def main(path: str) -> None:
    """Run the loop in a thread of its own, and print its counters when it ends."""
    with udpfast.Subscriber(path) as subscriber:
        print(f'strategies: udpfast.Reader("ring:{subscriber.name}")', flush=True)
        subscriber.join()
        incremental = subscriber.counters()["incremental"]
    print(f"{incremental['messages']} messages, {incremental['lost']} lost")


if __name__ == "__main__":
    main(sys.argv[1])
