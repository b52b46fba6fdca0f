#!/bin/sh
# Compare this host with what a low-latency receiver wants, and set what can be set: see --help.
#
# The knobs are in udpfast/host, which needs Python 3.11 and nothing installed or compiled. As root
# runs this, Python takes nothing from the environment, the user's folders or the current one.
set -eu
exec "${PYTHON:-python3}" -ISB -c '
import sys
if sys.version_info < (3, 11):
    sys.exit("tune_host.sh: expected Python 3.11 or later, found " + sys.version.split()[0])
sys.path.insert(0, sys.argv.pop(1))
from udpfast.host.command import main
main()
' "$(dirname "$(dirname "$(readlink -f "$0")")")" "$@"
