"""The results of `reproduce` as files: report, figures, tables and verdicts."""

from sparsetoken.reproduce.report.folder import write_results

__all__ = ["write_results"]
