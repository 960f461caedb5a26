"""`python -m pytest_gpuserve` is `gpuserve`."""

import sys

from .cli import main

sys.exit(main())
