"""`python -m experiment`: look at runs from a shell. See `experiment.cli.commands`."""

import sys

from experiment.cli import commands


def main() -> int:
    """Run the console script `spark-experiment`: the same commands under another name."""
    return commands.main(sys.argv[1:], program="spark-experiment")


if __name__ == "__main__":
    sys.exit(commands.main(sys.argv[1:]))
