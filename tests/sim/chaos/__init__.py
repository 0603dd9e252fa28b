"""What breaks, and what must be left when it is whole again."""
