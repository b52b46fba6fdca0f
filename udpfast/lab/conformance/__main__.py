"""`python -m udpfast.lab.conformance DIR`."""

from udpfast.lab.conformance import main

raise SystemExit(main())
