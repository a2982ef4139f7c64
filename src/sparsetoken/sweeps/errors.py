"""What can stop a sweep; the command line shows the message and nothing else."""

__all__ = ["DamagedStore", "StoreError", "StudyError", "SweepError"]


class SweepError(Exception):
    """A sweep cannot start or go on. What is in the store stays there."""


class StoreError(SweepError):
    """A store cannot be read or written, or belongs to something else."""


class DamagedStore(StoreError):
    """A store is not what was written."""


class StudyError(SweepError, ValueError):
    """A study is not valid.

    Parameters
    ----------
    source : str
        Where the study comes from, for instance the name of its file.
    problems : list of str
        Everything that is wrong, each with the key it is about.
    """

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def __str__(self) -> str:
        count = f"{len(self.problems)} problem" + "s" * (len(self.problems) != 1)
        return "\n".join([f"{self.source} has {count}:", *(f"  {text}" for text in self.problems)])
