"""One service at a time: the way of an edit through the rooms below, in order."""
