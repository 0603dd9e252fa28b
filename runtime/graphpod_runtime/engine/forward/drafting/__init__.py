"""Decode steps with drafts: who proposes them, what a step keeps of its sequences, which drafts are right."""
