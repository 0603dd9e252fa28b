"""How the operator does with a thousand services: `make bench-operator`, docs/contributing/bench-operator.md."""
