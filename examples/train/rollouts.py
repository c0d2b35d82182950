"""Rollouts of the embedded model on a task that can be checked, kept in a store and exported as rows of tokens.

python examples/train/rollouts.py data [--samples 4]
"""

import argparse
import asyncio
from functools import partial
from pathlib import Path

from task import LONGEST, QUESTIONS, reward

from stemma import MessageGraph, open_store
from stemma.cli.choosing import embedded_model
from stemma.core.call import unpack_ids
from stemma.core.exclusions import Rules
from stemma.formats.token_export import export_tokens, rollout_of
from stemma.formats.token_presets import token_preset
from stemma.models.local import LocalModel
from stemma.models.protocol import Request


async def sample(folder: Path, samples: int) -> None:
    """Ask every question several times; each answer is a rollout, and those to one question are a group."""
    model = LocalModel(embedded_model(), tight=True, params={"temperature": 1.0, "max_tokens": LONGEST})
    with open_store(folder / "stemma.db") as store:
        for question in QUESTIONS:
            for number in range(samples):
                graph = MessageGraph([{"role": "user", "content": question}])
                reply = await model.reply(Request(messages=graph.messages(), params={"seed": number}))
                graph.record(reply.message, reply.call)
                scored = reward(len(unpack_ids(reply.call.sampled_ids or b"")))
                store.save(graph, f"{question} {number}", metadata={"group": question, "reward": scored})
    await model.close()


def export(folder: Path) -> None:
    """Rows of all rollouts."""
    with open_store(folder / "stemma.db", create=False) as store:
        rollouts = [rollout_of(name, store.metadata(name), partial(store.load, name)) for name in store.names()]
        report = export_tokens(rollouts, token_preset("tokens"), folder, Rules(), version="example")
    print(f"{report.file}: {report.counts['rows']} rows, {report.counts['trained_tokens']} trained tokens")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=4)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(sample(asked.folder, asked.samples))
    export(asked.folder)
