"""The command line: one small module a command, and the only reader of environment variables."""
