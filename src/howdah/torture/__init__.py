"""Torture: real processes under real faults, and a checker that believes only the books."""
