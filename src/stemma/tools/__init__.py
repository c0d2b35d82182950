"""Tools: what a model may do. A tool is a typed function with a docstring."""
