"""A process in reserve and what it forks, each script a process of its own: this one may have threads."""

import os
import signal
import subprocess

from helped import group, until
from store.child import finish, python, run, start

HEAD = """
import os, signal, socket, sys, threading, time
from stemma.batch.reserve import reserved

def echo(line):
    while said := line.recv(100):
        line.sendall(b"%d heard %s" % (os.getpid(), said))
"""


def test_each_call_is_a_helper_of_its_own_and_all_have_ended_in_the_end():
    said = run(
        HEAD
        + """
with reserved(3, echo) as reserve:
    lines = [reserve.call() for _ in range(2)]
    for line in lines:
        line.sendall(b"hello")
    heard = [line.recv(100).split(b" ", 1) for line in lines]
    helpers = {int(process) for process, _ in heard}
    for line in lines:
        line.close()
for helper in helpers:
    try:
        os.kill(helper, 0)
        print("still there")
    except ProcessLookupError:
        print("gone")
print(len(helpers | {os.getpid()}), heard[0][1].decode(), reserve.most)
"""
    )
    assert said.splitlines() == ["gone", "gone", "3 heard hello 3"]


def test_there_is_none_where_one_process_is_enough_or_threads_run():
    said = run(
        HEAD
        + """
with reserved(1, echo) as reserve:
    print(reserve)
over = threading.Event()
threading.Thread(target=over.wait).start()
with reserved(4, echo) as reserve:
    print(reserve)
over.set()
"""
    )
    assert said.splitlines() == ["None", "None"]


def test_a_reserve_that_was_killed_is_noticed_and_its_helpers_go_on():
    said = run(
        HEAD
        + """
with reserved(3, echo) as reserve:
    line = reserve.call()
    line.sendall(b"before")
    line.recv(100)
    os.kill(reserve._process, signal.SIGKILL)
    while (again := reserve.call()) is not None:
        again.close()
        time.sleep(0.01)
    line.sendall(b"after")
    print(line.recv(100).split(b" ", 1)[1].decode(), again)
    line.close()
"""
    )
    assert said == "heard after None\n"


WAITS = (
    HEAD
    + """
with reserved(3, echo) as reserve:
    line = reserve.call()
    line.sendall(b"hello")
    print(line.recv(100).split()[0].decode(), flush=True)
    print(line.recv(100), flush=True)
"""
)


def test_the_keyboard_reaches_no_helper():
    process = start(python(WAITS), start_new_session=True)
    helper = int(process.stdout.readline())
    os.kill(helper, signal.SIGINT)
    os.kill(helper, signal.SIGTERM)
    assert helper in group(process.pid)
    process.kill()
    process.communicate()
    until(lambda: not group(process.pid), 5)


def test_none_outlives_who_called():
    process = start(python(WAITS), start_new_session=True)
    process.stdout.readline()
    assert len(group(process.pid)) == 3
    process.kill()
    process.communicate()
    until(lambda: not group(process.pid), 5)


def test_a_program_that_a_helper_starts_hears_the_keyboard_again():
    script = (
        HEAD
        + """
import subprocess
def starts(line):
    line.recv(1)
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        sleeping.send_signal(signal.SIGINT)
        line.sendall(str(sleeping.wait()).encode())

with reserved(2, starts) as reserve:
    line = reserve.call()
    line.sendall(b"!")
    print(line.recv(100).decode())
    line.close()
"""
    )
    assert finish(start(python(script), stdin=subprocess.DEVNULL)) == f"{-signal.SIGINT}\n"


def test_helpers_and_a_reserve_that_are_stopped_are_not_waited_for():
    said = run(
        HEAD
        + """
for stopped in ("helper", "reserve"):
    began = time.monotonic()
    with reserved(3, echo) as reserve:
        line = reserve.call()
        line.sendall(b"hello")
        helper = int(line.recv(100).split()[0])
        process = helper if stopped == "helper" else reserve._process
        os.kill(process, signal.SIGSTOP)
        line.close()
    print(stopped, time.monotonic() - began < 4)
    while True:
        try:
            os.kill(helper, 0)
        except ProcessLookupError:
            break
"""
    )
    assert said.splitlines() == ["helper True", "reserve True"]


def test_a_helper_that_does_not_end_is_killed():
    said = run(
        HEAD
        + """
from stemma.batch import reserve as module
module.ENDS_WITHIN = 0.2

def deaf(line):
    line.sendall(b"%d" % os.getpid())
    time.sleep(600)

with reserved(3, deaf) as reserve:
    helper = int(reserve.call().recv(100))
try:
    os.kill(helper, 0)
    print("still there")
except ProcessLookupError:
    print("gone")
"""
    )
    assert said.splitlines() == ["gone"]
