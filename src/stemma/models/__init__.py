"""Models: who answers. One protocol; an endpoint, a model in this process, a script, or a recording behind it."""
