"""An example without its one line: asks what the second argument says of the module that the first names."""

import sys
from importlib import import_module

print(import_module(sys.argv[1]).ask(sys.argv[2]))
