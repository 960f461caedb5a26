"""Suite files: YAML to `model.Suite`, every error with file, line and key. docs/suites.md has the format."""

from .load import load_suite

__all__ = ["load_suite"]
