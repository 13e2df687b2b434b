"""``python -m capim``: the command line, for when the script `capim` is not on the PATH."""

import sys

from capim import main

if __name__ == "__main__":
    sys.exit(main())
