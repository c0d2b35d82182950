"""The agent: a model, tools, and the loop between them."""
