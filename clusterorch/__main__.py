"""Here lives `python -m clusterorch`."""

import sys

from clusterorch.cli import main

sys.exit(main())
