"""``python -m runner``."""

import sys

if sys.version_info < (3, 11):
    sys.exit("runkit: Python 3.11 or later is needed, this is %d.%d" % sys.version_info[:2])

from runner.cli import main

sys.exit(main())
