"""The figures of on-policy rows: how few rows and tokens, and what capture, cover, proof and storage cost.

    python benchmarks/onpolicy.py            everything, in about a minute
    python benchmarks/onpolicy.py --quick    ten times smaller, for a first look
    python benchmarks/onpolicy.py --json     for programs

First a table: conversations as agents have them, and what becomes of them in three ways side by side: one row a call;
merging with the call before, as most frameworks do; and the cover. `best` is found by another algorithm (augmenting
paths over all pairs of calls) and must be what the cover gives. Exit code 1: it is not, or a bound was missed.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from measure import Figure, Values, report, timed
from stemma import Call, MessageGraph
from stemma.core.call import pack_ids, pack_logprobs
from stemma.core.cover import TokenCall, cover
from stemma.core.exclusions import Rules
from stemma.core.proof import WrittenRow, prove
from stemma.core.token_calls import captured
from stemma.core.token_rows import Standing, plan_rows
from stemma.formats.token_export import export_tokens, rollout_of
from stemma.formats.token_presets import token_preset
from stemma.formats.token_proof import manifest_of, prove_export
from stemma.store import SQLiteStore

SYSTEM, SAID, HEARD, THOUGHT = 3_000, 300, 900, 200
"""Tokens of a system prompt, a reply, a tool's result, and a thought."""

VOCABULARY = range(150_000)

Ids = list[int]


class Talk:
    """A conversation in tokens: `says` is a call, `hears` is context."""

    def __init__(self, rng: random.Random, start: Ids | None = None) -> None:
        self.rng, self.ids = rng, list(start) if start is not None else []
        if start is None:
            self.hears(SYSTEM)

    def hears(self, size: int = HEARD) -> "Talk":
        self.ids += self.rng.choices(VOCABULARY, k=size)
        return self

    def says(self, size: int = SAID) -> TokenCall:
        sampled = self.rng.choices(VOCABULARY, k=size)
        call = TokenCall(pack_ids(self.ids), pack_ids(sampled))
        self.ids += sampled
        return call

    def fork(self) -> "Talk":
        return Talk(self.rng, self.ids)


# ── conversations ────────────────────────────────────────────────────────────────────────────────────────────────


def linear(rng: random.Random, turns: int = 50) -> Iterator[TokenCall]:
    talk = Talk(rng)
    for _ in range(turns):
        talk.hears()
        yield talk.says()


def thinking_stripped(rng: random.Random, every: int, turns: int = 40) -> Iterator[TokenCall]:
    """Each reply begins with a thought; after `every` replies a user speaks and the template drops all thoughts."""
    shown = Talk(rng).ids
    thoughtless = list(shown)
    for turn in range(turns):
        if turn % every == 0:
            shown = list(thoughtless)
        heard = rng.choices(VOCABULARY, k=HEARD)
        shown, thoughtless = shown + heard, thoughtless + heard
        thought, said = (rng.choices(VOCABULARY, k=size) for size in (THOUGHT, SAID))
        yield TokenCall(pack_ids(shown), pack_ids(thought + said))
        shown, thoughtless = shown + thought + said, thoughtless + said


def interleaved_subagents(rng: random.Random) -> Iterator[TokenCall]:
    """A parent that three times starts three subagents; their calls arrive in turns."""
    parent = Talk(rng)
    for _ in range(3):
        parent.hears()
        yield parent.says()
        children = [Talk(rng).hears() for _ in range(3)]
        for _ in range(11):
            for child in children:
                yield child.says()
                child.hears()


def compaction(rng: random.Random) -> Iterator[TokenCall]:
    talk = Talk(rng)
    system = talk.ids[:SYSTEM]
    for turn in range(80):
        if turn and turn % 20 == 0:
            yield talk.hears(50).says(500)
            talk = Talk(rng, system + talk.ids[-500:])
        talk.hears()
        yield talk.says()


def parallel_rollouts(rng: random.Random) -> Iterator[TokenCall]:
    """Eight samples of one prompt, told apart by nothing, their calls in turns."""
    start = Talk(rng)
    talks = [start.fork() for _ in range(8)]
    for _ in range(10):
        for talk in talks:
            yield talk.says()
            talk.hears()


def tree_search(rng: random.Random) -> Iterator[TokenCall]:
    """Three replies at each of three levels below three beginnings, depth first."""
    waiting = [(Talk(rng), 0)]
    while waiting:
        talk, depth = waiting.pop()
        for _ in range(3 if depth < 4 else 0):
            child = talk.fork().hears()
            yield child.says()
            waiting.append((child, depth + 1))


def edits(rng: random.Random) -> Iterator[TokenCall]:
    talk = Talk(rng)
    for turn in range(40):
        if turn in (10, 20, 30):
            place = len(talk.ids) // 2
            talk.ids[place : place + 10] = rng.choices(VOCABULARY, k=10)
        talk.hears()
        yield talk.says()


WORKLOADS: dict[str, Callable[[random.Random], Iterator[TokenCall]]] = {
    "linear, 50 turns": linear,
    "thinking stripped at 5 user turns": lambda rng: thinking_stripped(rng, every=8),
    "thinking stripped every turn": lambda rng: thinking_stripped(rng, every=1),
    "3 x 3 interleaved subagents": interleaved_subagents,
    "compaction every 20 of 80 turns": compaction,
    "8 parallel rollouts": parallel_rollouts,
    "tree search, 3 ways, 4 levels": tree_search,
    "3 edits in the middle": edits,
}


# ── ways to make rows ────────────────────────────────────────────────────────────────────────────────────────────


def full(call: TokenCall) -> bytes:
    return call.prompt + call.sampled


def one_row_a_call(calls: list[TokenCall]) -> tuple[int, int]:
    return len(calls), sum(len(full(call)) for call in calls) // 4


def merged_with_previous(calls: list[TokenCall]) -> tuple[int, int]:
    ends = [a for a, b in pairwise(calls) if not b.prompt.startswith(full(a))] + calls[-1:]
    return one_row_a_call(ends)


def covered(calls: list[TokenCall]) -> tuple[int, int]:
    return one_row_a_call([calls[row[-1]] for row in cover(calls).rows])


def best(calls: list[TokenCall]) -> tuple[int, int]:
    """Longest first, each call gets a follower if an augmenting path over all pairs finds one."""
    follows = [[j for j, later in enumerate(calls) if later.prompt.startswith(full(one))] for one in calls]
    leader: dict[int, int] = {}

    def give(number: int, tried: set[int]) -> bool:
        for j in follows[number]:
            if j not in tried:
                tried.add(j)
                if j not in leader or give(leader[j], tried):
                    leader[j] = number
                    return True
        return False

    order = sorted(range(len(calls)), key=lambda n: -len(full(calls[n])))
    return one_row_a_call([calls[n] for n in order if not give(n, set())])


def print_rows() -> bool:
    """The table; True if the cover is everywhere the best."""
    sys.setrecursionlimit(10_000)
    print(f"{'rows / tokens':34}  {'calls':>5}  {'one a call':>14}  {'with previous':>14}  {'cover':>14}  {'tree':>6}")
    fine = True
    for name, workload in WORKLOADS.items():
        calls = list(workload(random.Random(name)))
        found = covered(calls)
        fine &= found == best(calls)
        ways = (one_row_a_call(calls), merged_with_previous(calls), found)
        shown = "  ".join(f"{f'{rows} / {tokens / 1000:,.0f}k':>14}" for rows, tokens in ways)
        tree = f"{cover(calls).tree_tokens / 1000:,.0f}k"
        print(f"{name:34}  {len(calls):5}  {shown}  {tree:>6}{'' if found == best(calls) else '  NOT THE BEST'}")
    print(f"rows and tokens of the cover are {'' if fine else 'NOT '}the fewest possible\n")
    return fine


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────────


def conversation(turns: int, name: str = "") -> MessageGraph:
    """A linear conversation with its tokens; the text is a word a message, because tokens are what is measured."""
    graph, rng = MessageGraph([{"role": "user", "content": f"go {name}"}]), random.Random(name)
    for turn, call in enumerate(linear(rng, turns)):
        logprobs = pack_logprobs([-rng.expovariate(1.0) for _ in range(SAID)])
        graph.record(
            {"role": "assistant", "content": f"a{turn}"},
            Call(model="m", prompt_ids=call.prompt, sampled_ids=call.sampled, logprobs=logprobs),
        )
        graph.append({"role": "tool", "tool_call_id": "c", "content": f"t{turn}"})
    return graph


def capture(folder: Path) -> Values:
    """Recording and saving turns with about 63,000 tokens of context, after fifty others."""
    graph, rng = conversation(50), random.Random(1)
    talk = Talk(rng, [])
    talk.ids = [*graph_ids(graph)]
    with SQLiteStore(folder / "capture.db") as store:
        store.save(graph, "a")
        calls = [talk.hears(30).says() for _ in range(20)]
        with timed() as watch:
            for call in calls:
                logprobs = bytes(4 * SAID)
                record = Call(model="m", prompt_ids=call.prompt, sampled_ids=call.sampled, logprobs=logprobs)
                graph.record({"role": "assistant", "content": "x"}, record)
                store.save_soon(graph, "a")
            store.save(graph, "a")
    return {"turn": watch.busy / len(calls) * 1000}


def graph_ids(graph: MessageGraph) -> Ids:
    last = graph.calls()[-1].call
    return list(memoryview((last.prompt_ids or b"") + (last.sampled_ids or b"")).cast("i"))


def covering(scale: int) -> Values:
    """Two hundred conversations of fifty turns, as one."""
    calls: list[TokenCall] = []
    for rollout in range(200 // scale):
        talk, first = Talk(random.Random(rollout), []).hears(500), len(calls)
        for turn in range(50):
            one = talk.hears(30).says(20)
            calls.append(TokenCall(one.prompt, one.sampled, first + turn - 1 if turn else None))
    return {"calls": quickest(lambda: cover(calls)) * 1000}


def quickest(act: Callable[[], object]) -> float:
    """The processor's seconds of the best of five runs: what others do on the machine is not ours."""
    runs = []
    for _ in range(5):
        with timed() as watch:
            act()
        runs.append(watch.busy)
    return min(runs)


def proving(folder: Path, scale: int) -> Values:
    """In memory, and from the files of an export."""
    rollouts = [conversation(100 // scale, str(n)) for n in range(10)]
    plans = [plan_rows(str(n), captured(g, str(n)), Rules(), Standing(group="g")) for n, g in enumerate(rollouts)]
    rows = [WrittenRow(row.ids, row.labels(), row.logprobs()) for plan in plans for row in plan.rows]
    some = [rollout_of(str(n), {}, lambda g=g: g) for n, g in enumerate(rollouts)]
    export_tokens(some, token_preset("tokens"), folder / "export", Rules(), version="bench")
    manifest = manifest_of(folder / "export")
    told, checked = prove_export(manifest)
    lines = (folder / "export" / "receipts.jsonl").read_bytes().splitlines()
    assert checked.findings == prove(told, lines, rows).findings == []
    tokens = checked.tokens / 1e6
    seconds = quickest(lambda: prove(told, lines, rows)), quickest(lambda: prove_export(manifest))
    return {"memory": tokens / seconds[0], "files": tokens / seconds[1]}


def storing(folder: Path, scale: int) -> Values:
    path = folder / "size.db"
    graph = conversation(200 // scale)
    with SQLiteStore(path) as store:
        store.save(graph, "a")
        with timed() as loading:
            again = store.load("a")
        assert again.calls() == graph.calls()
    plain = sum(len(c.call.prompt_ids or b"") for c in graph.calls())
    return {"size": path.stat().st_size / 1e6, "plain": plain / 1e6, "load": loading.busy * 1000}


FIGURES = [
    Figure("capture: record and save a turn at 63k tokens of context", "capture.turn", "ms", "≤", 1.0),
    Figure("cover of 10,000 calls", "cover.calls", "ms", "≤", 50),
    Figure("proof, rows in memory", "proof.memory", "M tokens/s", "≥", 50),
    Figure("proof, from Parquet and receipts", "proof.files", "M tokens/s"),
    Figure("store: tokens of 200 turns, 243k tokens", "store.size", "MB", "≤", 1.5),
    Figure("the same prompts written whole", "store.plain", "MB"),
    Figure("loading them", "store.load", "ms"),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten times smaller; bounds still apply")
    parser.add_argument("--json", action="store_true", help="print JSON, without the table of rows")
    asked = parser.parse_args()
    scale = 10 if asked.quick else 1
    fine = asked.json or print_rows()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = {
            "capture": capture(folder),
            "cover": covering(scale),
            "proof": proving(folder, scale),
            "store": storing(folder, scale),
        }
    measured = {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}
    return 0 if report(FIGURES, measured, as_json=asked.json) and fine else 1


if __name__ == "__main__":
    sys.exit(main())
