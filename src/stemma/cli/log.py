"""`stemma log`: what a store has, what a conversation says, and how it came to say it.

`listing` writes tables and lists, `drawing` lanes, `mermaid` diagrams. `tests/cli/test_log.py` runs them all.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from stemma.cli.options import CONFIGURED, JsonOption, StoreOption, reading
from stemma.cli.screen import Screen

if TYPE_CHECKING:
    from stemma.store import Store


def log(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A graph, or a line of one: NAME, NAME@VERSION, NAME/LINK.")
    ] = None,
    graph: Annotated[bool, typer.Option("--graph", help="Draw all lines in lanes, subagents included.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Write a Mermaid diagram of the same.")] = False,
    store: StoreOption = CONFIGURED,
    json: JsonOption = False,
) -> None:
    """List the graphs of a store, or the messages of one.

    In lists and lanes ● is a message that a model call made, ○ is context.
    """
    if graph and mermaid:
        raise typer.BadParameter("--graph and --mermaid are two drawings of one thing; choose one")
    with reading(store) as opened:
        if name is None and (graph or mermaid):
            name = _only_graph(opened)
        if name is None:
            _list_graphs(opened, store, json)
        elif graph:
            _draw(opened, name, json)
        elif mermaid:
            _diagram(opened, name, json)
        else:
            _list_messages(opened, name, json)


def _only_graph(store: "Store") -> str:
    from stemma.errors import NotFound

    names = [info.name for info in store.graphs()]
    if len(names) == 1:
        return names[0]
    raise NotFound(f"there are {len(names)} graphs here; name the one to draw (`stemma log` lists them)")


def _list_graphs(store: "Store", path: str, json: bool) -> None:
    from stemma.cli.listing import graphs_as_dicts, graphs_as_table

    graphs, screen = store.graphs(), Screen()
    if json:
        screen.json({"store": path, "graphs": graphs_as_dicts(graphs)})
    elif not graphs:
        screen.line((f"{path} has no graphs yet", "dim"))
    else:
        for line in graphs_as_table(graphs):
            screen.line(*line)


def _list_messages(store: "Store", name: str, json: bool) -> None:
    from stemma.cli.address import resolve
    from stemma.cli.listing import line_as_dict, line_as_list

    place, screen = resolve(store, name), Screen()
    if json:
        screen.json(line_as_dict(place))
    else:
        for line in line_as_list(place, screen.width):
            screen.line(*line)


def _draw(store: "Store", name: str, json: bool) -> None:
    from stemma.cli.address import resolve
    from stemma.cli.drawing import as_dict, as_line
    from stemma.cli.lanes import rows

    place, screen = resolve(store, name), Screen()
    if json:
        screen.json(
            {"graph": place.graph_address, "rows": [as_dict(row) for row in rows(place.graph, place.graph_address)]}
        )
    else:
        for row in rows(place.graph, place.graph_address):
            screen.line(*as_line(row, screen.width))


def _diagram(store: "Store", name: str, json: bool) -> None:
    from stemma.cli.address import resolve
    from stemma.cli.mermaid import diagram

    place, screen = resolve(store, name), Screen()
    lines = diagram(place.graph, place.graph_address)
    if json:
        screen.json({"graph": place.graph_address, "mermaid": "\n".join(lines)})
    else:
        for line in lines:
            screen.line(line)
