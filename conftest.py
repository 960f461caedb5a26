"""For the project's own tests: `pytester` runs pytest inside a test."""

pytest_plugins = ["pytester"]
