"""Six questions to a real model in this process, one edit, and everything stemma kept of it.

Run it with `make demo`. Nothing is scripted: SmolLM2, a model of 135M parameters, answers on your CPU. It is tiny, so
it gets one tool a question, worked examples, and a grammar that keeps each reply well-formed; what it says is its own.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from stemma import MessageGraph, open_store
from stemma.agent.agent import Agent
from stemma.agent.facts import Fact, Replied, ToolRan
from stemma.agent.prompts import Example, examples_for, small_system
from stemma.models.local import LocalModel
from stemma.tools.files import read_file, write_file
from stemma.tools.sandbox import NoSandbox, choose_sandbox
from stemma.tools.terminal import terminal

FILES = {
    "notes.txt": "Milk\nEggs\nFlour\n",
    "people.txt": "Ada lives in London.\n",
}


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def multiplied(a: int, b: int) -> Example:
    return Example(
        ask=f"What is {a} times {b}?",
        thought=f"I multiply {a} by {b}.",
        tool="multiply",
        arguments={"a": a, "b": b},
        result=str(a * b),
        answer=f"The product is {a * b}.",
    )


QUESTIONS = [
    ("What does notes.txt say?", read_file),
    ("Where does Ada live? Look in people.txt.", read_file),
    ("Write 'good morning' to hello.txt.", write_file),
    ("How many lines are in notes.txt?", terminal),
    ("How many words are in people.txt?", terminal),
    ("What is 17 times 23?", multiply),
]


def agent_with(tool: Callable, model: LocalModel) -> Agent:
    examples = [multiplied(6, 7), multiplied(12, 5)] if tool is multiply else examples_for(tool.__name__)
    return Agent(model=model, tools=[tool], system=small_system(examples))


async def converse(model: LocalModel) -> list[MessageGraph]:
    graphs = []
    for question, tool in possible(QUESTIONS):
        agent = agent_with(tool, model)
        graphs.append(await ask(agent, question))

    say("One message is edited like an item of a list. Replies rest on it, so the line before is kept:")
    last = graphs[-1]
    with last.edit():
        last[1]["content"] = "What is 17 times 32?"
        del last[2:]
    await ask(agent, last[1]["content"], last)
    await model.close()
    return graphs


async def ask(agent: Agent, question: str, graph: MessageGraph | None = None) -> MessageGraph:
    """One conversation through the agent's loop; `graph` is one that ends in the question already."""
    print(f"› {question}", flush=True)
    async with agent.start(graph) as conversation:
        for name, text in FILES.items():
            write_file(name, text, conversation.workspace)
        async for fact in conversation.facts(question if graph is None else []):
            show(fact)
    if not conversation.completed:
        print(f"    no answer: {conversation.stop_reason}")
    return conversation.graph


def show(fact: Fact) -> None:
    if isinstance(fact, Replied):
        message = fact.reply.message
        for call in message.get("tool_calls") or ():
            print(f"    {message['reasoning']} → {call['function']['name']} {call['function']['arguments']}", end="")
        if message.get("content"):
            print(f"    {message['content']}", flush=True)
    elif isinstance(fact, ToolRan):
        print(f" ← {' '.join(fact.result.text.split())[:40]}", flush=True)


def possible(questions: list) -> list:
    try:
        choose_sandbox()
    except NoSandbox as problem:
        print(f"(the questions that need a terminal are left out: {problem})")
        return [(question, tool) for question, tool in questions if tool is not terminal]
    return questions


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def stemma(*words: str) -> str:
    """What the command writes; its progress and errors are shown as they come."""
    command = [sys.executable, "-m", "stemma", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()


def run(command: str, but: str = "\n") -> None:
    """Show a command of stemma and what it writes, without lines about `but`."""
    written = [line for line in stemma(*command.split()).splitlines() if not line.lstrip().startswith(but)]
    print(f"$ stemma {command}", *written, sep="\n", flush=True)


def main() -> None:
    model = LocalModel(stemma("models", "get"), tight=True, threads=os.cpu_count() or 1, params={"temperature": 0})
    say(f"{model.name} answers in this process, each question with a tool:")
    graphs = asyncio.run(converse(model))

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open_store("stemma.db") as store:
            for number, graph in enumerate(graphs, 1):
                store.save(graph, f"question-{number}")
        say("Both lines of the last conversation, in the store:")
        run(f"log question-{len(graphs)} --graph --store stemma.db")
        say("What to train on, as text and as the very tokens the model saw and sampled, each with its proof:")
        run("export stemma.db --for hermes -o hermes", but="sample")
        run("verify hermes")
        run("export stemma.db --for tokens -o tokens")
        run("verify tokens")
        run("verify stemma.db")


if __name__ == "__main__":
    main()
