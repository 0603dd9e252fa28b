"""`graphpod top` and `graphpod why`: what services do, and why one is not Ready, for people at a terminal."""
