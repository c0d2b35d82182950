"""A conversation that is edited, compacted and helped by a subagent, and everything stemma kept of it.

Run it with `make demo`. It needs no model: the replies are scripted.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from stemma import Call, MessageGraph, open_store

MODEL = Call(model="scripted", params={"temperature": 1.0})


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def converse() -> MessageGraph:
    chat = MessageGraph([{"role": "system", "content": "You are a careful mathematician."}])
    chat.append({"role": "user", "content": "Name a prime."})
    chat.record({"role": "assistant", "content": "4"}, MODEL)

    chat[1]["content"] = "Name a prime above 90."  # an ordinary edit; it breaks the context of "4"
    chat[2]["content"] = "Let me look."
    chat.append({"role": "user", "content": "Please ask somebody."})
    ask = {"name": "delegate_task", "arguments": '{"goal": "a prime above 90"}'}
    call = {"id": "call_1", "type": "function", "function": ask}
    chat.record({"role": "assistant", "content": None, "tool_calls": [call]}, MODEL)

    helper = MessageGraph([{"role": "user", "content": "Find a prime above 90."}])
    helper.record({"role": "assistant", "content": "97, since no prime up to 9 divides it."}, MODEL)
    chat.append({"role": "tool", "tool_call_id": "call_1", "content": "97"}, contains=helper)
    chat.record({"role": "assistant", "content": "97"}, MODEL)

    with chat.edit(reason="compaction"):  # several edits, one version
        chat[1:5] = [{"role": "user", "content": "Summary: we look for a prime above 90; a helper was asked."}]
        del chat[2]
    chat.append({"role": "user", "content": "So?"})
    chat.record({"role": "assistant", "content": "97 is a prime above 90."}, MODEL)
    return chat


def stemma(*words: str) -> None:
    print(f"$ stemma {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "stemma", *words], check=True)


def main() -> None:
    chat = converse()
    say("The context now is an ordinary list:")
    for message in chat:
        print(f"  {message['role']:9}  {message['content']}")

    say("Every line a reply was sampled from is still there, and is trained exactly once:")
    for row in chat.rows():
        print("  " + " → ".join(_cell(m, i in row.trained) for i, m in enumerate(row.messages)))

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "stemma.db")
        with open_store(path) as store:
            store.save(chat, "primes")
        say("It is kept in a store, as a graph:")
        stemma("log", "primes", "--graph", "--store", path)
        say("Every id in the store can be derived again:")
        stemma("verify", path)


def _cell(message: dict, trained: bool) -> str:
    text = message["content"] or message["tool_calls"][0]["function"]["name"] + "(…)"
    short = text if len(text) < 24 else text[:22] + "…"
    return f"[{short}]" if trained else short


if __name__ == "__main__":
    main()
