"""The pure heart: messages, lines, versions, calls and rows. No files, clock, randomness or logging."""
