"""`python -m experiment`: look at runs from a shell. See `experiment.cli.commands`."""

import sys

from experiment.cli.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
