"""The version of Howdah. The build reads it from here; nothing else declares it."""

__version__ = "0.3.0"
