import sys

from stubs.engine.process import main

sys.exit(main())
