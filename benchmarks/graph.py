"""The figures of the message graph and its store, all of them in one run.

    python benchmarks/graph.py                  everything, in about five minutes
    python benchmarks/graph.py --quick          ten times fewer messages and edits
    python benchmarks/graph.py --only long_line changing_head
    python benchmarks/graph.py --json           for programs

Each measurement runs in a process of its own, so that its peak of memory is its own and nothing is warm from before;
what a crowded machine disturbs is measured several times, and the median is shown. Work in memory is measured in
busy seconds; work with a disk by the clock on the wall, with the busy seconds of all threads beside it.
Exit code 1: a bound was missed.
"""

import argparse
import json
import os
import platform
import sys

import in_memory
import on_disk
from measure import Figure, Measurement, Values, in_child, report

MEASUREMENTS: dict[str, tuple[Measurement, int]] = {
    "appends": (in_memory.appends, 3),
    "edits_against_naive": (in_memory.edits_against_naive, 1),
    "many_edits": (in_memory.many_edits, 1),
    "long_line": (on_disk.long_line, 3),
    "long_sampled_line": (on_disk.long_sampled_line, 1),
    "many_versions": (on_disk.many_versions, 1),
    "changing_head": (on_disk.changing_head, 3),
    "plain_nodes": (on_disk.plain_nodes, 1),
    "million_nodes": (on_disk.million_nodes, 1),
    "group_commit": (on_disk.group_commit, 3),
}
"""What to run, and in how many processes."""

FIGURES = [
    Figure("append", "appends.append", "/s", "≥", 100_000),
    Figure("record a reply", "appends.record", "/s"),
    Figure("edit 0 of 1,000 + reply: faster than naive", "edits_against_naive.first", "×", "≥", 20),
    Figure("  the same, 100 times over", "edits_against_naive.many", "×", "≥", 20),
    Figure("  the same, asking for the tip's id each time", "edits_against_naive.many_with_ids", "×"),
    Figure("  one edit and reply", "edits_against_naive.one_edit", "µs"),
    Figure("  2,000 edits against 200", "edits_against_naive.growth", "×", "≤", 12),
    Figure("10,000 edits of 1,000 messages", "many_edits.seconds", "s", "≤", 10),
    Figure("  memory an edit", "many_edits.bytes_each", "B"),
    Figure("  saved at once, all versions", "many_versions.save", "s"),
    Figure("  loaded", "many_versions.load", "s"),
    Figure("  verified", "many_versions.verify", "s"),
    Figure("  size", "many_versions.mib", "MiB"),
    Figure("  peak", "many_versions.peak", "MiB"),
    Figure("line of 100,000: append all", "long_line.append", "s", "≤", 5),
    Figure("  save", "long_line.save", "s", "≤", 10),
    Figure("  save after one more message", "long_line.one_more", "s"),
    Figure("  load", "long_line.load", "s", "≤", 1),
    Figure("  edit at 0 + save", "long_line.edit", "s", "≤", 0.5),
    Figure("  edit at 0 + save, after load", "long_line.edit_loaded", "s", "≤", 0.5),
    Figure("  peak of all that", "long_line.peak", "MiB", "≤", 600),
    Figure("  with 50,000 calls: append all", "long_sampled_line.append", "s"),
    Figure("  with 50,000 calls: save", "long_sampled_line.save", "s"),
    Figure("  with 50,000 calls: load", "long_sampled_line.load", "s"),
    Figure("  with 50,000 calls: edit at 0 + save", "long_sampled_line.edit", "s"),
    Figure("  with 50,000 calls: peak", "long_sampled_line.peak", "MiB"),
    Figure("head edited before 500 calls: size against unedited", "changing_head.ratio", "×", "≤", 5),
    Figure("  before 1,000 calls", "changing_head.ratio_twice", "×", "≤", 5),
    Figure("  all 500 saves", "changing_head.save", "s", "≤", 10),
    Figure("  size", "changing_head.kib", "KiB"),
    Figure("  size unedited", "changing_head.kib_plain", "KiB"),
    Figure("10⁶ nodes: made and saved", "plain_nodes.save", "s", "≤", 120),
    Figure("  verified", "plain_nodes.verify", "s", "≤", 60),
    Figure("10⁶ nodes with 500,000 calls, edits, subagents: made and saved", "million_nodes.save", "s"),
    Figure("  verified", "million_nodes.verify", "s", "≤", 60),
    Figure("  slowest of 100 loads", "million_nodes.read", "s", "≤", 1),
    Figure("  save: 10⁶ against 10⁵", "million_nodes.save_growth", "×", "≤", 12),
    Figure("  verify: 10⁶ against 10⁵", "million_nodes.verify_growth", "×", "≤", 12),
    Figure("  size", "million_nodes.mib", "MiB"),
    Figure("  peak", "million_nodes.peak", "MiB"),
    Figure("saves a second, one thread", "group_commit.alone", "/s"),
    Figure("  64 threads", "group_commit.together", "/s"),
    Figure("  group commit gives", "group_commit.ratio", "×"),
]


def main() -> int:
    """Measure, print, judge."""
    wanted = _arguments()
    if wanted.measure:
        act, _ = MEASUREMENTS[wanted.measure]
        print(json.dumps(act(wanted.scale)))
        return 0
    names = wanted.only or list(MEASUREMENTS)
    measured: Values = {}
    for name in names:
        print(f"measuring {name} …", file=sys.stderr)
        repeats = 1 if wanted.quick else MEASUREMENTS[name][1]
        found = in_child(__file__, name, 10 if wanted.quick else 1, repeats)
        measured.update({f"{name}.{key}": value for key, value in found.items()})
    figures = [figure for figure in FIGURES if figure.source in measured]
    if not wanted.json:
        print(
            f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, median of runs"
        )
        if wanted.quick:
            print("quick: ten times fewer messages and edits than the figures say; bounds as for the whole")
    return 0 if report(figures, measured, as_json=wanted.json) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten times fewer messages and edits")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
