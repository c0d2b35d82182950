"""The batch runner: an agent over thousands of prompts, nothing lost, nothing twice."""
