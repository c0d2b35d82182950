import signal
import subprocess

import pytest

from stemma.batch.claims import Claims, alone
from store.child import finish, python, start

HOLDER = """
import sys
from pathlib import Path
from stemma.batch.claims import Claims

claims = Claims(Path(sys.argv[1]))
for line in sys.stdin:
    verb, name = line.split()
    print(claims.take(name) if verb == "take" else claims.release(name), flush=True)
"""


class Other:
    """Another process that takes claims."""

    def __init__(self, path):
        self.process = start(python(HOLDER, path), stdin=subprocess.PIPE)

    def does(self, verb, name):
        self.process.stdin.write(f"{verb} {name}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "claims.lock"


@pytest.fixture
def other(path):
    made = Other(path)
    yield made
    made.process.kill()
    made.process.communicate()


def test_what_another_process_has_is_not_taken_until_it_lets_go(path, other):
    claims = Claims(path)
    assert other.does("take", "a") == "True"
    assert not claims.take("a")
    assert claims.take("b")
    assert other.does("take", "b") == "False"
    other.does("release", "a")
    assert claims.take("a")
    claims.close()


def test_a_killed_process_lets_go_of_all(path, other):
    assert other.does("take", "a") == "True"
    other.process.send_signal(signal.SIGKILL)
    other.process.wait()
    claims = Claims(path)
    assert claims.take("a")
    claims.close()


def test_one_process_takes_a_task_once(path):
    claims = Claims(path)
    assert claims.take("a")
    assert not claims.take("a")
    claims.release("a")
    assert claims.take("a")
    claims.close()


def test_who_wants_a_folder_alone_waits_for_whoever_has_it(tmp_path):
    script = """
    import sys
    from pathlib import Path
    from stemma.batch.claims import alone

    print("asks", flush=True)
    with alone(Path(sys.argv[1])):
        print((Path(sys.argv[1]) / "mark").exists())
    """
    with alone(tmp_path):
        process = start(python(script, tmp_path))
        assert process.stdout.readline() == "asks\n"
        (tmp_path / "mark").touch()
    assert finish(process) == "True\n"
