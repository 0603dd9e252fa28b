"""One service at a time: the way of an edit through the other rooms, in order."""
