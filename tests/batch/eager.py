"""The command `stemma` in which helpers are called as soon as anything waits: in a small run, on a busy machine."""

from stemma.batch import busy

busy.BUSY, busy.SHORTEST, busy.WORTH_IT = 0.0, 0.0, 1

if __name__ == "__main__":
    from stemma.cli.main import run

    run()
