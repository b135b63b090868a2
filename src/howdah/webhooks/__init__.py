"""Webhooks: signed HTTP messages about failed jobs, halted consumers and stuck queues."""
