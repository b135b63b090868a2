"""Upgrades from earlier releases."""
