"""Training on arrays: feature maps, the four stages, and the convex readout.

Shared by simulation, which feeds it data drawn from a task, and by the estimators, which feed it
the user's data.
"""
