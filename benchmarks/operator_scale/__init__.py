"""How the operator does with a thousand services: `make bench-operator`, docs/benchmarks.md."""
