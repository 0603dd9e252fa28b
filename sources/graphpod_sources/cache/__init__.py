"""The claim that models are kept in: one writer for each folder, its size, and which folders leave first."""
