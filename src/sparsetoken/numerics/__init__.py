"""Numerical tools that know no statistics."""
