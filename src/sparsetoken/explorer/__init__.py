"""A page on this machine to play with the theory: move a slider, see the exact answer."""
