"""From what a service asks to a plan: candidates, rules, and the sizes of a ladder."""
