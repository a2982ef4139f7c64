"""Exact predictions in the limit of high dimension."""
