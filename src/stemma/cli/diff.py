"""`stemma diff`: what changed between two lines. `tests/cli/test_diff.py` compares lines of all kinds."""

from typing import Annotated

import typer

from stemma.cli.options import CONFIGURED, JsonOption, StoreOption, reading
from stemma.cli.screen import Screen


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A line: NAME, NAME@VERSION, or an id (the line up to it).")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    store: StoreOption = CONFIGURED,
    json: JsonOption = False,
) -> None:
    """Compare two lines, message by message and word by word.

    What they have in common is folded into one line. Text taken out is [-so-], text put in is {+so+}.
    """
    from stemma.cli.address import resolve
    from stemma.cli.comparison import Comparison

    with reading(store) as opened:
        comparison = Comparison(resolve(opened, a), resolve(opened, b))
    screen = Screen()
    if json:
        screen.json(comparison.as_dict())
    else:
        for line in comparison.as_lines(screen.width):
            screen.line(*line)
