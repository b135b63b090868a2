"""Notices: telling those outside what happened, by webhooks."""
