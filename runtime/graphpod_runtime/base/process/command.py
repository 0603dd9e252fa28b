"""How a process of ours begins another one."""

import sys

MODULE = (sys.executable, "-P", "-m")
"""In front of a module's name. Not from the folder in which the user happens to be: Python would look there first, and
a model's folder may have a file of the name of a library."""
