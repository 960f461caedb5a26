"""Stands in for what SGLang imports and a CPU does not have: the CUDA kernels (`sgl_kernel`) and torchvision.

Python imports this file by itself in every process whose PYTHONPATH names this folder. Importing anything from the
two works; calling it raises, so that nothing can pass for a kernel's result.
"""

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

VERSIONS = {"sgl_kernel": "0.4.10", "torchvision": "0.0"}


class StandIn:
    """Any function or class of a missing package; its attributes are such as well."""

    def __init__(self, name):
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")

    def __call__(self, *args, **options):
        raise RuntimeError(f"{self.__name__} was called, and there is no such thing on this CPU")


class Finder(MetaPathFinder, Loader):
    """Finds the two packages and whatever module below them."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in VERSIONS else None

    def exec_module(self, module):
        module.__version__ = VERSIONS[module.__name__.partition(".")[0]]
        module.__getattr__ = lambda name: getattr(StandIn(module.__name__), name)


sys.meta_path.append(Finder())

_find_spec = importlib.util.find_spec


def find_spec(name, package=None):
    """transformers asks so whether torchvision is there, and would use it."""
    return None if name == "torchvision" else _find_spec(name, package)


importlib.util.find_spec = find_spec
