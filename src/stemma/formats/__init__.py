"""What conversations look like outside: API messages in, trajectories and training rows out, and back."""
