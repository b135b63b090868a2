"""Nodes: every running process registers, beats, and says goodbye."""
