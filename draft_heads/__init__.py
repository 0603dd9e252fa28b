"""Draft heads trained in this repository, and how they are trained again."""
