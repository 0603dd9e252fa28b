import sys

from testbed.images.build import main

sys.exit(main(sys.argv[1:]))
