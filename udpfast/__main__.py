"""`python -m udpfast` is `udpfast`."""

from udpfast.cli.main import main

main()
