"""One resolution while it is in progress: candidates, rules and the sizes of a ladder."""
