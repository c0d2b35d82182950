"""A long stream is worked on by another process: in order, not too far ahead, and whatever happens to that process."""

import multiprocessing
import os
import subprocess
import sys
import time
from itertools import count, islice
from pathlib import Path

import pytest

from formats.at_work import killed_on, refused, who
from stemma.formats.ahead import AHEAD, SHORT, ahead


def test_a_long_stream_is_worked_on_by_another_process_and_comes_in_order():
    found = list(ahead(who, range(30)))
    assert [(batch, result) for batch, (result, _) in found] == [(n, 2 * n) for n in range(30)]
    workers = [process for _, (_, process) in found]
    assert set(workers[:SHORT]) == {os.getpid()}
    assert len(set(workers[SHORT:])) == 1
    assert os.getpid() not in workers[SHORT:]


def test_a_short_stream_needs_no_process():
    assert {process for _, (_, process) in ahead(who, range(SHORT))} == {os.getpid()}


def test_the_stream_is_read_only_a_little_ahead_of_the_caller_and_its_process_goes_with_it():
    numbers = count()
    results = ahead(who, numbers)
    assert [batch for batch, _ in islice(results, 20)] == list(range(20))
    results.close()
    assert next(numbers) <= 20 + AHEAD + 1
    assert multiprocessing.active_children() == []


def test_what_a_killed_process_leaves_undone_is_done_here():
    stream = [(number, os.getpid()) for number in range(40)]
    assert [result for _, result in ahead(killed_on, stream)] == [2 * number for number in range(40)]


def test_the_other_process_ends_with_one_that_is_killed():
    script = """
from itertools import count
from formats.at_work import who
from stemma.formats.ahead import SHORT, ahead
if __name__ == "__main__":
    for batch, (_, process) in ahead(who, count()):
        if batch == SHORT:
            print(process, flush=True)
"""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, **paths})
    with caller:
        other = int(caller.stdout.readline())
        assert Path(f"/proc/{other}").exists()
        caller.kill()
    until = time.monotonic() + 30
    while is_running(other):
        assert time.monotonic() < until, "it outlives who called it"
        time.sleep(0.02)


def is_running(process: int) -> bool:
    """Whether it is there, and not only because nobody has asked how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_failure_of_the_work_rises():
    with pytest.raises(ValueError, match="25 is too much"):
        list(ahead(refused, range(30)))
