#!/bin/sh
# Compare the settings of this host with what a low-latency receiver needs, and change them if asked
# to: see --help.
#
# The code is in udpfast/host. It needs Python 3.11, and nothing installed or compiled. Because root
# runs this script, Python ignores its environment variables, the packages of the user and the
# current directory.
set -eu
exec "${PYTHON:-python3}" -ISB -c '
import sys
if sys.version_info < (3, 11):
    sys.exit("tune_host.sh: expected Python 3.11 or later, found " + sys.version.split()[0])
sys.path.insert(0, sys.argv.pop(1))
from udpfast.host.command import main
main()
' "$(dirname "$(dirname "$(readlink -f "$0")")")" "$@"
