"""Long trajectories to a token budget: protect the ends, summarise the middle, lose nothing."""
