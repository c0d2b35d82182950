import asyncio
import threading
import time

import pytest

from stemma.batch.threaded import in_a_thread


class Source:
    """Numbers, and whether they were closed."""

    def __init__(self, number, problem=None):
        self.number, self.problem, self.closed, self.given = number, problem, False, 0

    async def __aiter__(self):
        try:
            for item in range(self.number):
                await asyncio.sleep(0)
                self.given += 1
                yield item
            if self.problem:
                raise self.problem
        finally:
            await asyncio.sleep(0)
            self.closed = True


def test_all_comes_in_order():
    assert list(in_a_thread(Source(1000))) == [*range(1000)]


def test_what_is_raised_there_is_raised_here_after_all_that_came_before():
    items = in_a_thread(Source(3, ValueError("odd")))
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="odd"):
        next(items)


def test_who_leaves_early_stops_the_work_and_leaves_no_thread():
    before, source = threading.active_count(), Source(10**9)
    for item in in_a_thread(source):
        if item == 5:
            break
    assert source.closed
    assert threading.active_count() == before


def test_a_slow_reader_makes_the_work_wait():
    source = Source(10_000)
    items = in_a_thread(source)
    next(items)
    time.sleep(0.3)
    assert source.given < 600
    items.close()


def test_it_works_where_a_loop_runs_already():
    async def notebook():
        return list(in_a_thread(Source(3)))

    assert asyncio.run(notebook()) == [0, 1, 2]
