"""One module per open question; each defines `CLAIM`, the answer that is put to the test."""
