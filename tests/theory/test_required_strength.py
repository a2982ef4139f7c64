import pytest

from sparsetoken import Task, oracle, required_strength


@pytest.mark.parametrize("length", [30, 300])
def test_attention_needs_little_more_than_the_bayes_floor(length: int) -> None:
    # At length 300 the best sharpness jumps from that of pooling to that of picking one token.
    task = Task(length, 1, 1.0, 0.5)
    needed = required_strength(task, 0.05, "attention")
    floor = required_strength(task, 0.05, "bayes")
    assert 0.98 < needed.strength / floor.strength < 1.05
    reached = oracle(task.replace(strength=needed.strength), "attention")
    assert reached.error == pytest.approx(0.05, abs=0.003)
