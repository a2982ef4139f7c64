"""The same quantities as in theory, from finite data drawn from a task."""
