"""`python -m bench VERB` is `udpfast bench VERB`."""

import sys

from udpfast.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "bench")
    main()
