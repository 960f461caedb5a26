"""Declarative benchmarks of LLM servers, as a pytest plugin. Start reading at docs/architecture.md."""

__version__ = "0.1.0"
