"""`python -m stemma` is the `stemma` command."""

from stemma.cli.main import run

if __name__ == "__main__":
    run()
