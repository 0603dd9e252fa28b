"""An engine process with marks and without a model, which answers at once."""

from benchmarks.first_token.marks import wrap_wire
from benchmarks.front_streams.engine import main

if __name__ == "__main__":
    wrap_wire()
    main()
