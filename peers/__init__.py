"""Other projects' test suites, run unmodified against our server. `make peer-suites` runs them all."""
