"""How many processes a run may have: where others would not have the same model and tools, one."""

import os

from stemma.cli.batch_processes import MOST, most_processes
from stemma.cli.choosing import choose_model
from stemma.cli.settings import read_settings

URL = "http://127.0.0.1:9/v1"


def most(folder, asked=None, **settings):
    found = read_settings({"model": "m", **settings}, {}, folder)
    return most_processes(asked, found, choose_model(found, base_url=None if ":" in found.get("model") else URL))


def test_a_run_may_have_a_process_for_each_processor_or_what_was_asked_for(tmp_path):
    assert most(tmp_path) == min(MOST, len(os.sched_getaffinity(0)))
    assert (most(tmp_path, 5), most(tmp_path, 12), most(tmp_path, 1)) == (5, 12, 1)


def test_a_script_or_a_server_of_tools_is_had_by_one_process_alone(tmp_path):
    assert most(tmp_path, 4, **{"mcp.tools.command": "serve"}) == 1
    (tmp_path / "replies.jsonl").write_text('"Four."\n')
    assert most(tmp_path, 4, model=f"scripted:{tmp_path}/replies.jsonl") == 1


def test_an_endpoint_that_is_told_tools_as_text_is_an_endpoint(tmp_path):
    assert most(tmp_path, 4, model="fast", **{"models.fast.base_url": URL, "models.fast.protocol": "hermes"}) == 4
