"""The parts of an assistant's turn, read from the text that the model writes."""
