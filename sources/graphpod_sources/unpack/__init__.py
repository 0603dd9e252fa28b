"""Archives and layers into files: nothing outside of their folder, and no more than was allowed."""
