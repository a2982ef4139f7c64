"""One module per claim; each defines `CLAIM`."""
