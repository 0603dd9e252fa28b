"""`python -m benchmarks.schemas`."""

from benchmarks.schemas.sweep import main

raise SystemExit(main())
