"""`python -m udpfast.testing.conformance DIR`."""

from udpfast.testing.conformance import main

raise SystemExit(main())
