"""pytester takes modules that an inner run imported out of `sys.modules` again. What the plugin imports late is
imported here, so that every inner run in this process sees the same classes."""

import numpy  # noqa: F401
import requests  # noqa: F401
import scipy.stats  # noqa: F401
import yaml  # noqa: F401
