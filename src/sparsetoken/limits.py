"""How much may be asked for: beyond these numbers memory or time would go before a result."""

__all__ = [
    "LARGEST_SEED",
    "MOST_CELLS",
    "MOST_DIMENSIONS",
    "MOST_HEADS",
    "MOST_REPEATS",
    "MOST_RETRIES",
    "MOST_STEPS",
    "MOST_STUDY_BYTES",
    "MOST_TRIALS",
    "MOST_VALUES",
    "MOST_WORKERS",
    "usable_cores",
]

MOST_STUDY_BYTES = 10**7
MOST_VALUES = 10**6  # of one list or range
MOST_CELLS = 10**7  # made one at a time, but all are counted when a sweep starts
MOST_STEPS = 10**4  # of joint descent; each takes as long as the one before
MOST_TRIALS = 10**8  # of all cells; a byte for each is kept in memory while a sweep runs
MOST_DIMENSIONS = 10**7  # of a token that is drawn
MOST_HEADS = 1024  # of attention; each is fitted to all data
MOST_REPEATS = 10**4  # of a cross-validation; all its folds are listed before the first fit
LARGEST_SEED = 2**32 - 1 - MOST_REPEATS  # 32 bits for scikit-learn, which counts repeats on
MOST_RETRIES = 1000  # of a failed trial
MOST_WORKERS = 1024  # processes of one machine


def usable_cores() -> int:
    """Return how many cores this process may use: no more than its affinity and its container allow.

    The machine may have many more. As many processes as it has would wait for each other.
    """
    from joblib import cpu_count  # loaded where a command runs, not where its help is shown

    return int(cpu_count())
