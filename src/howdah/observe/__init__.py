"""Observe: logs, metrics, traces and health of a process, all fed by ``howdah.telemetry``.

The packages that do the work do not import this one. A library never configures logging or tracing by itself: the
command line does, or the application.
"""
