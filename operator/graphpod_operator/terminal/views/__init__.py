"""What a terminal shows: rows, a table, a page. Pure, but for the screen."""
