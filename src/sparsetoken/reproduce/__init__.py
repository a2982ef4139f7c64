"""The paper's claims: each measured, drawn and judged by a criterion that its module states."""
