"""Grammars of answers, by llguidance: their text, their bounds, their state in an answer. No torch."""
