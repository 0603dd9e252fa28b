"""How requests of the OpenAI API have tokens chosen, counted and shown: fields, checks, and what they become."""
