"""Stands in for vllm's own `__init__`: everything but the benchmark client is an empty shell.

`vllm.benchmarks` and the small helpers it needs are the unmodified code of the wheel unpacked at $PEER_VLLM.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types

__path__ = [os.environ["PEER_VLLM"] + "/vllm"]
__version__ = "0.32.0"

REAL = ("vllm.benchmarks", "vllm.utils.gc_utils", "vllm.utils.network_utils", "vllm.utils.import_utils")


class _Anything:
    """Whatever an import expects: callable, subscriptable, a base class."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *arguments, **_):
        return arguments[0] if arguments and callable(arguments[0]) else _Anything()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __mro_entries__(self, _):
        return (object,)

    def __or__(self, _):
        return self

    __ror__ = __or__

    def __getitem__(self, _):
        return self


class _Shell(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


def _tokenizer(name, *_, **__):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        real = any(name == each or name.startswith(each + ".") for each in REAL)
        if real or not name.startswith("vllm."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = _Shell(spec.name)
        module.__path__ = [os.environ["PEER_VLLM"] + "/" + spec.name.replace(".", "/")]
        if spec.name == "vllm.tokenizers":
            module.get_tokenizer = _tokenizer
        if spec.name == "vllm.utils.argparse_utils":
            import argparse

            module.FlexibleArgumentParser = argparse.ArgumentParser
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _Finder())
