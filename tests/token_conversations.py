"""Conversations whose calls have tokens, made by a template so small that every token is a word."""

from stemma import Call, MessageGraph


class Words:
    """A tokenizer: each word is one id, in the order of first use."""

    def __init__(self):
        self.known = {}

    def __call__(self, text):
        return [self.known.setdefault(word, len(self.known) + 1) for word in text.split()]

    def text(self, number):
        return next(word for word, known in self.known.items() if known == number)


class Chat:
    """A graph, and a model that sees it through a template."""

    def __init__(self, *messages, words=None, model="m", strip_thinking=False):
        self.graph, self.words, self.model = MessageGraph(messages), words or Words(), model
        self.strip_thinking, self.sampled = strip_thinking, 0

    def prompt(self, tools=None, ephemeral=""):
        text = " ".join(f"tool:{tool['function']['name']}" for tool in tools or [])
        last_user = max((i for i, m in enumerate(self.graph.messages()) if m["role"] == "user"), default=0)
        for i, message in enumerate(self.graph.messages()):
            thought = message.get("reasoning", "")
            if thought and self.strip_thinking and i < last_user:
                thought = ""
            text += f" <{message['role']}> {thought} {message['content']} </>"
        return self.words(f"{text} {ephemeral} <assistant>")

    def says(self, text, *, reasoning="", tools=None, tokens=True, logprobs=True, extra=None, **fields):
        """The model replies, and the call is recorded."""
        message = {"role": "assistant", "content": text, **({"reasoning": reasoning} if reasoning else {})}
        extra = dict(extra or {})
        if tokens:
            sampled = self.words(f"{reasoning} {text} </>")
            self.sampled += len(sampled)
            fields |= {"prompt_ids": self.prompt(tools, extra.get("ephemeral", "")), "sampled_ids": sampled}
            if logprobs:
                fields["logprobs"] = [-0.5 - n / 8 for n in range(len(sampled))]
        self.graph.record(message, Call(model=fields.pop("model", self.model), tools=tools, extra=extra, **fields))
        return self

    def hears(self, text, role="user", **fields):
        """Somebody else says something."""
        self.graph.append({"role": role, "content": text, **fields})
        return self


def user(text):
    return {"role": "user", "content": text}


def offered(name):
    return [{"type": "function", "function": {"name": name}}]
