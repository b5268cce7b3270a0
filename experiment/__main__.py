"""`python -m experiment`: look at runs from a shell. See `experiment.commands`."""

import sys

from experiment.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
